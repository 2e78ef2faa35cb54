"""Deciding from rounds: an interval of the speedup that is looked at a few times while it grows.

A round's figure for a version is the trimmed mean of its calls. Rounds are independent (new pages, images loaded anew),
calls within one are not, so the interval is Student's t over rounds. All looks share one error probability (Bonferroni,
the simplest group-sequential bound; C. Jennison and B. Turnbull, "Group Sequential Methods", 1999).

Events decide. They can be forged by device code, which can write where the driver keeps their time stamps. The wall
clock, which ends with a digest of the outputs that is made again afterwards, cannot; it is coarser, and has to bear out
a gain above what it resolves. It has to be precise enough for that, too: a version that is slow now and then would else
keep it from saying anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tilewright.evaluation.statistics import ERROR_PROBABILITY, Interval, student_quantile
from tilewright.rules import DEFAULT, Rules
from tilewright.wire.messages import Round

LOOKS = (8, 12, 18, 28, 40)
"""Numbers of rounds after which a comparison may end."""
PRECISE = 0.001
"""Half-width of a log-ratio below which a further look adds nothing."""
PRECISE_SHARE = 0.2
"""The same as a share of the difference."""
TRIMMED = 0.1
"""Share of a round's calls that is left out at either end."""
WALL_TRIMMED = 0.25
"""The same for the wall clock: whatever else the host does comes in bursts that hit more than a tenth of a version's
calls in one round of a hundred (on an H200, by up to 26 us)."""
ROUND_S = 0.12
"""For the calls of a round, about; their number follows from what one takes."""
CALL_OVERHEAD_US = 250.0
"""What the host does around a call, measured on an H200, and what the GPU does there with small tensors."""
PAIRS = (10, 40)
"""Fewest and most calls an arm in a round."""
LONG_US, LONG_PAIRS = 2000.0, 6
"""Of a call that takes so long, fewer are enough."""

Verdict = Literal["faster", "slower", "inconclusive"]


class Figures(NamedTuple):
    """One round: microseconds for a call of arm 0, of arm 1 and of an empty program, by either clock."""

    events: tuple[float, float, float]
    wall: tuple[float, float, float]

    @property
    def log_ratio(self) -> float:
        """Log of arm 0's time over arm 1's: above zero where arm 1 is faster."""
        return math.log(self.events[0] / self.events[1])

    @property
    def wall_gain(self) -> float:
        """Microseconds that arm 1 saves by the wall clock."""
        return self.wall[0] - self.wall[1]


def figures(found: Round) -> Figures:
    """A round's figures from its calls. Raises ValueError where there are none, or a time is zero."""
    events = tuple(trimmed_mean(calls) for calls in found.events)
    wall = tuple(trimmed_mean(calls, WALL_TRIMMED) for calls in found.wall)
    if min(events[:2]) <= 0:
        raise ValueError("a program took no time by its events")
    return Figures((events[0], events[1], events[2]), (wall[0], wall[1], wall[2]))


def trimmed_mean(values: Sequence[float], trimmed: float = TRIMMED) -> float:
    """The mean without a share at either end, one value of five at least. Raises ValueError for no values."""
    if not values:
        raise ValueError("a round without calls")
    cut = max(int(trimmed * len(values)), len(values) >= 5)
    kept = sorted(values)[cut : len(values) - cut]
    return math.fsum(kept) / len(kept)


def interval(values: Sequence[float], error_probability: float) -> Interval:
    """The mean over rounds, and an interval that misses it with this probability at one look. Raises ValueError for
    fewer than two."""
    count = len(values)
    if count < 2:
        raise ValueError("an interval needs at least two rounds")
    mean = math.fsum(values) / count
    error = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1) / count)
    half = student_quantile(error_probability, count - 1) * error
    return Interval(mean, mean - half, mean + half, error, count, count - 1)


@dataclass
class Comparison:
    """Two versions so far: arm 0 and arm 1. `error_probability` is that of all looks together."""

    rounds: list[Figures] = field(default_factory=list)
    error_probability: float = ERROR_PROBABILITY
    rules: Rules = DEFAULT
    """What counts: the floor, and what the wall clock has to bear out."""

    @property
    def speedup(self) -> Interval:
        """Of arm 1 over arm 0, as a log-ratio by events."""
        return interval([one.log_ratio for one in self.rounds], self.error_probability / len(LOOKS))

    @property
    def wall_gain(self) -> Interval:
        """Microseconds that arm 1 saves by the wall clock."""
        return interval([one.wall_gain for one in self.rounds], self.rules.wall_error / len(LOOKS))

    def mean_us(self, arm: int) -> float:
        """Microseconds for a call of an arm by events; 2: of an empty program."""
        return math.fsum(one.events[arm] for one in self.rounds) / len(self.rounds)

    @property
    def borne_out(self) -> bool:
        """Whether the wall clock bears the difference out: within its noise it shows half of it or more, and its noise
        is at most half of it. True for a difference that it cannot resolve."""
        gain, wall = self.mean_us(0) - self.mean_us(1), self.wall_gain
        if abs(gain) <= self.rules.wall_resolution_us:
            return True
        return wall.half_width <= abs(gain) / 2 and not self._contradicted

    @property
    def _contradicted(self) -> bool:
        """Whether the wall clock is sure that the difference is less than half of what the events say."""
        gain, wall = self.mean_us(0) - self.mean_us(1), self.wall_gain
        return wall.high < gain / 2 if gain > 0 else wall.low > gain / 2

    @property
    def verdict(self) -> Verdict:
        """What can be said of arm 1. A gain that the wall clock contradicts is none."""
        found = self.speedup
        if found.low > 0 and found.mean >= self.rules.floor and self.borne_out:
            return "faster"
        return "slower" if found.high < 0 and found.mean <= -self.rules.floor else "inconclusive"

    @property
    def decided(self) -> bool:
        """Whether more rounds would change nothing that matters. Where the wall clock is too coarse as yet to bear a
        gain out, they would."""
        half, mean = self.speedup.half_width, abs(self.speedup.mean)
        gains = self.speedup.low > 0 and self.speedup.mean >= self.rules.floor
        if gains and not self.borne_out and not self._contradicted:
            return False
        return half <= PRECISE or (self.verdict != "inconclusive" and half <= PRECISE_SHARE * mean)


def pairs_for(scouted: Figures) -> int:
    """Calls an arm in a round, by what a call took first. Before and after the wall clock the GPU does as much again as
    while that runs: it overwrites all memory, and makes two more digests."""
    us, wall = max(scouted.events[:2]), max(scouted.wall[:2])
    least, most = PAIRS if us < LONG_US else (LONG_PAIRS, PAIRS[1])
    return min(max(int(1e6 * ROUND_S / 3 / (CALL_OVERHEAD_US + 2 * wall)), least), most)
