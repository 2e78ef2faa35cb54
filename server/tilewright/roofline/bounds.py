"""How fast a case could run: by measured ceilings, and by the data sheet."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tilewright.gpu.specs import DeviceSpec
from tilewright.task import Work
from tilewright.wire.record import Record

MEMORY_BOUND_BELOW = 10.0
COMPUTE_BOUND_ABOVE = 50.0
NEAR_PERCENT = 60.0
"""Of a ceiling: from here on it may be what holds a kernel back. Far below, something else does."""
CREDIBLE_SHARE = 1.1
"""Of a bound by measured ceilings: what lies above it was not measured against the right ceiling."""


class Ceilings(Record):
    """The rates that the device reached when it was measured (or, unmeasured, the shares that models assume)."""

    copy_bytes_per_s: float
    flops: dict[str, float] = Field(description="by dtype, in flop/s")
    measured: bool
    mixes: list[tuple[float, float]] = Field([], description="share of the bytes that is read, and bytes/s, in order")

    def bytes_per_s(self, work: Work) -> float:
        """The rate for the work's own mix of reads and writes: between those of the nearest mixes that were measured. A
        copy's where no mix is known."""
        if work.written is None or not self.mixes:
            return self.copy_bytes_per_s
        read = 1 - min(work.written / work.bytes, 1.0)
        below = max((mix for mix in self.mixes if mix[0] <= read), default=self.mixes[0])
        above = min((mix for mix in self.mixes if mix[0] >= read), default=self.mixes[-1])
        weight = (read - below[0]) / (above[0] - below[0]) if above[0] > below[0] else 0.0
        return (1 - weight) * below[1] + weight * above[1]


def intensity_class(work: Work) -> Literal["memory-bound", "balanced", "compute-bound"]:
    """The kernel's class by arithmetic intensity in flops per byte: under 10, 10 to 50, over 50."""
    if work.intensity < MEMORY_BOUND_BELOW:
        return "memory-bound"
    return "compute-bound" if work.intensity > COMPUTE_BOUND_ABOVE else "balanced"


def roofline_ms(work: Work, ceilings: Ceilings) -> tuple[float, Literal["memory", "compute"]] | None:
    """The least latency in ms that the ceilings allow for the compulsory work, and which of them binds.

    None where the work is bound by arithmetic on a dtype whose ceiling is not known.

    Source: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model", CACM 2009.
    """
    memory = work.bytes / ceilings.bytes_per_s(work) * 1e3
    rate = ceilings.flops.get(work.dtype)
    if rate is None:
        return (memory, "memory") if intensity_class(work) == "memory-bound" else None
    compute = work.flops / rate * 1e3
    return (memory, "memory") if memory >= compute else (compute, "compute")


def bounded_by(bound: str | None, percent: float | None) -> str:
    """What bounds a kernel that reaches so much of its nearest ceiling; empty where no ceiling applies."""
    if not bound or percent is None:
        return ""
    return bound if percent >= NEAR_PERCENT else f"neither ceiling ({bound} is the nearer)"


def floor_ms(work: Work, device: DeviceSpec, resident_bytes: float) -> float:
    """A latency in ms that no correct kernel beats: data-sheet peaks, with `resident_bytes` of it in the cache."""
    memory = max(work.bytes - resident_bytes, 0.0) / device.dram_bytes_per_s
    return max(memory, work.flops / device.limit_flops(work.dtype)) * 1e3


def roofline_share(latency_ms: float, work: Work, ceilings: Ceilings) -> tuple[float | None, str | None]:
    """The share of its bound that a latency reaches, in percent, and what binds; None, both, where no ceiling applies.

    A share far over 100 means that the ceiling was taken on another path (float32 products that ran as tfloat32, say)
    and says nothing.
    """
    bound = roofline_ms(work, ceilings)
    if bound is None or bound[0] / latency_ms > CREDIBLE_SHARE:
        return None, None
    return 100 * bound[0] / latency_ms, bound[1]
