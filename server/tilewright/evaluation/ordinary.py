"""An ordinary call beside a replay of the same launches: whether a version is fast only when it is replayed.

An ordinary call differs from a replay in its allocator and in its launch gaps, by up to a tenth for honest kernels. The
incumbent's call differs in the same way, so both ratios are compared.
"""

from __future__ import annotations

import math

from pydantic import Field

from tilewright.wire.record import Record

ALLOWED, ALLOWED_US = 0.05, 1.0
"""By how much the ratios may differ, as a logarithm: the sum of the first, and of the second over a replay's time."""
SHORT_US = 10.0
"""Calls under it are not compared: the difference would have to be very large to be seen."""
ADDED, ADDED_US = 0.2, 5.0
"""Share and microseconds of host time from which on a version adds some."""


class Ordinary(Record):
    """A call in a process of its own, without capture. Medians, in microseconds."""

    us: float = Field(gt=0, description="of the call's kernels, copies and memsets together, by CUPTI")
    replayed_us: float = Field(gt=0, description="the same of a replay")
    host_us: float = Field(ge=0, description="that the host takes to launch the call, with CUPTI's records")

    @property
    def host_bound(self) -> bool:
        """Whether the GPU waits for the host where one call follows the other."""
        return self.host_us > self.us


def is_short(mine: Ordinary) -> bool:
    """Whether a call takes too little time for its durations to be compared."""
    return max(mine.us, mine.replayed_us) < SHORT_US


def slower_outside(mine: Ordinary, incumbents: Ordinary) -> str:
    """In words, by how much longer an ordinary call takes beside a replay than the incumbent's does. Empty if that is
    no more than what is allowed. Faster is no harm."""
    allowed = ALLOWED + ALLOWED_US / mine.replayed_us
    excess = math.log(mine.us / mine.replayed_us) - math.log(incumbents.us / incumbents.replayed_us)
    if is_short(mine) or excess <= allowed:
        return ""
    return (
        f"an ordinary call takes {mine.us:.1f} us, a replay {mine.replayed_us:.1f} us: beside the incumbent's "
        f"{incumbents.us:.1f} us and {incumbents.replayed_us:.1f} us that is {100 * math.expm1(excess):.1f}% too long "
        f"({100 * math.expm1(allowed):.1f}% are allowed): it is fast only when it is replayed"
    )


def added_host_time(mine: Ordinary, incumbents: Ordinary) -> str:
    """In a few words, what a version adds to the host's time. Empty if that cannot be told from noise, or if the GPU
    takes over twice as long: then nobody waits for the host."""
    added = mine.host_us - incumbents.host_us
    if added <= max(ADDED * incumbents.host_us, ADDED_US) or mine.host_us < mine.us / 2:
        return ""
    return f"{added:+.0f} us on the host" + (", host-bound" if mine.host_bound else "")
