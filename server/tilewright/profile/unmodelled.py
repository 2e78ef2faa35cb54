"""What bounds a call that no model sees, a Triton kernel's: by its trace, ncu's counters and the compiled code."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.compilation import Compilation
from tilewright.compiler.treatments import DO_IN_TRITON, Treatment
from tilewright.profile.counters import KernelCounters
from tilewright.profile.reading import FEW_WARPS_PERCENT, Bound, Found, by_counters, by_dram, launching
from tilewright.profile.tracing import CaseTrace
from tilewright.task import Work

TRITON_TREATMENTS: dict[Bound, tuple[str, ...]] = {
    "bytes in flight": ("more warps a program (num_warps), each with fewer values", "smaller tiles, so that more fit"),
    "tensor cores": ("search tiles, num_warps and num_stages together", "a shorter dtype where the tolerance allows"),
    "instruction issue": ("rows and strides that are multiples of 16: wider loads", "num_warps=8"),
    "uncoalesced access": ("let tl.arange run along the dimension whose elements are neighbours in memory",),
    "bank conflicts": ("another order or size of the tile that is transposed or reduced",),
}
"""What to try in Triton's words, where cuTile's differ."""
MANY_SPILLED = 64
"""Bytes a thread from which spills are held to be why warps wait or issue without end."""


def bound_unmodelled(
    latency_ms: float,
    work: Work,
    compiled: Sequence[Compilation],
    counters: Sequence[KernelCounters],
    trace: CaseTrace | None,
) -> Found:
    """What bounds a call of `work` that took `latency_ms`: the first that holds, from what hides all else."""
    if trace is not None and (found := launching(trace.kernels_a_call, latency_ms, "traced")) is not None:
        return found
    longest = _longest(counters, trace)
    own = [one for one in compiled if one.kernel in longest] or compiled
    made = [(one, one.resources) for one in own if one.resources is not None]
    for one, resources in made:
        if one.has_products and not resources.tensor_core:
            return Found(
                "missing tensor cores", "compute",
                f"counted: {one.kernel} multiplies matrices, and has no tensor-core instruction",
                (f"{Treatment.TENSOR_CORE_DTYPE}: {DO_IN_TRITON[Treatment.TENSOR_CORE_DTYPE]}",),
            )  # fmt: skip
    spilled = max((resources.spill_bytes for _, resources in made), default=0)
    found = by_counters(counters, work)
    if found is not None and (spilled < MANY_SPILLED or found.bound not in ("bytes in flight", "instruction issue")):
        triton = any(one.is_triton for one in own)
        return found._replace(treatments=TRITON_TREATMENTS.get(found.bound, found.treatments)) if triton else found
    if spilled >= MANY_SPILLED:
        return _spills(spilled)
    for one, resources in made:
        held = 100 * (resources.warps_per_sm or 0) / max(resources.max_warps_per_sm, 1)
        if resources.warps_per_sm and held < FEW_WARPS_PERCENT:
            return Found(
                "bytes in flight", "latency",
                f"counted: {one.kernel} fills {held:.0f}% of the warps that an SM holds, limited by "
                f"{resources.limited_by}",
                TRITON_TREATMENTS["bytes in flight"],
            )  # fmt: skip
    if spilled:
        return _spills(spilled)
    if (found := by_dram(counters)) is not None:
        return found
    return Found(
        "unexplained", "unknown",
        "no model sees this call, and neither its counters, its trace nor its code explain the latency; stall reasons "
        "and hit rates would (ncu --set full)",
        (),
    )  # fmt: skip


def _longest(counters: Sequence[KernelCounters], trace: CaseTrace | None) -> str:
    """The name of the kernel that takes longest in a call, as far as that is known."""
    if counters:
        return max(counters, key=lambda one: one.time_ns).kernel
    rows = trace.kernels if trace is not None else []
    return max(rows, key=lambda row: row.launches * row.med_us).kernel if rows else ""


def _spills(spilled: int) -> Found:
    return Found(
        "spilled registers", "memory",
        f"counted: each thread stores {spilled} bytes of registers",
        (f"{Treatment.MORE_WORKER_WARPS}: {DO_IN_TRITON[Treatment.MORE_WORKER_WARPS]}", "a smaller tile"),
    )  # fmt: skip
