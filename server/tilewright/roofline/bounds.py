"""How fast a case could run: by measured ceilings, and by the data sheet."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tilewright.gpu.specs import DeviceSpec
from tilewright.records import Record
from tilewright.task import Work

MEMORY_BOUND_BELOW = 10.0
COMPUTE_BOUND_ABOVE = 50.0


class Ceilings(Record):
    """The rates that the device reached when it was measured (or, unmeasured, the shares that models assume)."""

    copy_bytes_per_s: float
    flops: dict[str, float] = Field(description="by dtype, in flop/s")
    measured: bool


def intensity_class(work: Work) -> Literal["memory-bound", "balanced", "compute-bound"]:
    """The kernel's class by arithmetic intensity in flops per byte: under 10, 10 to 50, over 50."""
    if work.intensity < MEMORY_BOUND_BELOW:
        return "memory-bound"
    return "compute-bound" if work.intensity > COMPUTE_BOUND_ABOVE else "balanced"


def roofline_ms(work: Work, ceilings: Ceilings) -> tuple[float, Literal["memory", "compute"]]:
    """The least latency in ms that the ceilings allow for the compulsory work, and which of them binds.

    Source: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model", CACM 2009.
    """
    memory = work.bytes / ceilings.copy_bytes_per_s * 1e3
    rate = ceilings.flops.get(work.dtype) or ceilings.flops.get("float32", 0.0)
    compute = work.flops / rate * 1e3 if rate else 0.0
    return (memory, "memory") if memory >= compute else (compute, "compute")


def floor_ms(work: Work, device: DeviceSpec) -> float:
    """A latency in ms that no correct kernel can beat: data-sheet peaks, bytes that can stay in L2 left out."""
    memory = max(work.bytes - device.l2_bytes, 0.0) / device.dram_bytes_per_s
    return max(memory, work.flops / device.peak_flops(work.dtype)) * 1e3
