"""What can bound a kernel, and which of it the number of launches and ncu's counters name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from tilewright.compiler.treatments import Treatment
from tilewright.gpu.specs import SECTOR_BYTES
from tilewright.policy import RootCause
from tilewright.profile.counters import KernelCounters
from tilewright.roofline.model import LAUNCH_MS
from tilewright.task import Work

DRAM_PERCENT = 80.0
"""Of what DRAM sustains at most, from which nothing else bounds a kernel: a copy reaches about 90 on an H200."""
UNIT_PERCENT = 60.0
"""Of what a unit sustains at most, from which it is taken to bound a kernel: none is kept busy all the time."""
SHARED_PERCENT = 50.0
CONFLICT_SHARE = 0.4
"""Of the wavefronts of shared memory: those that bank conflicts add, from which they are what to treat."""
SCATTERED = 18.0
"""Sectors a request: above what the widest coalesced load takes, which is 16."""
PASSING = 1.5
"""The L2 cache's share over DRAM's, up to which it only passes on what DRAM moves: 1.05 to 1.35 in streams on an H200,
2 and more where blocks share inputs."""
FULL_PERCENT = 90.0
"""Of what the L2 cache sustains, from which it bounds whatever passes through it."""
FEW_WARPS_PERCENT = 50.0
LAUNCH_SHARE = 0.3
"""Share of the latency that launching takes, from which it bounds the call."""

Bound = Literal[
    "DRAM bandwidth", "L2 bandwidth", "tensor cores", "missing tensor cores", "arithmetic", "instruction issue",
    "bytes in flight", "launch overhead", "tail wave", "spilled registers", "torch operations", "unexplained",
    "uncoalesced access", "bank conflicts", "shared memory",
]  # fmt: skip


class Found(NamedTuple):
    """A bound, by which evidence, and what to try."""

    bound: Bound
    root_cause: RootCause
    evidence: str
    treatments: tuple[str, ...]


CONFLICT_TREATMENTS = (
    "allow_tma=False on the load and the store of a tile that is transposed or reduced across its rows: the compiler "
    "then lays it out without conflicts",
    "transpose a tile of a shorter dtype, or in the kernel that reads it",
)
GATHER_TREATMENTS = (
    f"{Treatment.TILES_FOR_GATHERS}: a tile load where indices are regular",
    "let neighbouring elements of the tile be neighbours in memory: a tile, or indices, along the last dimension, "
    "transposed after",
)
LARGER = "larger tiles: each input is read again once a tile"
SWIZZLE = "swizzle the blocks, so that neighbours share inputs"
WIDER_LOADS = "larger loads a block, or several rows of them at once"
TERMS: dict[str, tuple[Bound, RootCause, tuple[str, ...]]] = {
    "DRAM bandwidth": ("DRAM bandwidth", "memory", ("narrower storage types where the task allows them",)),
    "bytes in flight": (
        "bytes in flight", "latency",
        (f"{Treatment.RAISE_OCCUPANCY}: more CTAs a SM", WIDER_LOADS),
    ),
    "L2 bandwidth": (
        "L2 bandwidth", "memory",
        (LARGER, SWIZZLE),
    ),
    "matmuls": (
        "tensor cores", "compute",
        ("autotune: tiles, num_worker_warps and num_ctas together", "a shorter dtype where the tolerance allows it"),
    ),
    "arithmetic": (
        "arithmetic", "compute",
        ("exp2 for exp, with the factor folded in", f"{Treatment.FEWER_DIVISIONS}: one reciprocal a row"),
    ),
    "instruction issue": (
        "instruction issue", "compute",
        (f"{Treatment.WIDER_ACCESS}: fewer, wider loads", "num_worker_warps=8, so that more warps issue"),
    ),
}  # fmt: skip


def launching(launches: float, latency_ms: float, how: str = "counted") -> Found | None:
    """Whether launches, of which a call has so many, take much of its latency; `how` they are known."""
    if launches * LAUNCH_MS < LAUNCH_SHARE * latency_ms:
        return None
    return Found(
        "launch overhead", "launch",
        f"{how}: {launches:g} launches of about {LAUNCH_MS * 1e3:.0f} us each in {latency_ms * 1e3:.1f} us",
        ("fuse the launches into one kernel", "let the caller capture its calls in a CUDA graph"),
    )  # fmt: skip


def _longest(counters: Sequence[KernelCounters]) -> KernelCounters | None:
    return max(counters, key=lambda one: one.time_ns, default=None)


def counted(counters: Sequence[KernelCounters]) -> str:
    """The counters of the longest launch in one line; empty where there are none."""
    if (main := _longest(counters)) is None:
        return ""
    parts = [
        f"{name} {main.get(key):.0f}%"
        for name, key in (
            ("DRAM", "dram_percent"), ("L2", "l2_percent"), ("L1 and shared memory", "l1_percent"),
            ("shared memory's pipe", "shared_percent"), ("issue", "issue_percent"),
            ("occupancy", "occupancy_percent"),
        )
        if key in main.values
    ]  # fmt: skip
    parts.append(f"tensor pipe {main.tensor:.0f}%")
    if (stall := main.worst_stall) and main.stalls[stall] > 0:
        parts.append(f"most warps wait for {stall} ({main.stalls[stall]:.1f} an issue)")
    more = f"; {len(counters) - 1} further launches" if len(counters) > 1 else ""
    return f"ncu: {main.time_ns / 1e3:.1f} us, {', '.join(parts)}{more}"


def by_counters(counters: Sequence[KernelCounters], work: Work) -> Found | None:
    """What the counters of the longest launch name; None where there are none, or they name nothing."""
    if (main := _longest(counters)) is None:
        return None
    if main.sectors_a_request >= SCATTERED and main.get("load_sectors") * SECTOR_BYTES > work.bytes:
        return Found(
            "uncoalesced access", "memory",
            f"ncu: a warp's load touches {main.sectors_a_request:.0f} sectors of 32 bytes, "
            f"{main.get('load_sectors') * SECTOR_BYTES / 1e6:.0f} MB in all, and the work is {work.bytes / 1e6:.0f} MB",
            GATHER_TREATMENTS,
        )  # fmt: skip
    if main.get("dram_percent") >= DRAM_PERCENT:
        return _term("DRAM bandwidth", f"ncu: DRAM at {main.get('dram_percent'):.0f}% of what it sustains")
    if main.get("shared_percent") >= SHARED_PERCENT and main.conflicts >= CONFLICT_SHARE:
        return Found(
            "bank conflicts", "memory",
            f"ncu: {main.conflicts:.0%} of shared memory's wavefronts are bank conflicts, and its pipe is busy "
            f"{main.get('shared_percent'):.0f}% of the time",
            CONFLICT_TREATMENTS,
        )  # fmt: skip
    return _busiest(main) or _waiting(main)


def _busiest(main: KernelCounters) -> Found | None:
    """The unit that is nearest to what it sustains, if any is near; where that is DRAM, which is not full, none is."""
    passing = main.get("l2_percent") <= min(PASSING * main.get("dram_percent"), FULL_PERCENT)
    units = {
        "matmuls": main.tensor,
        "DRAM bandwidth": main.get("dram_percent"),
        "L2 bandwidth": 0.0 if passing else main.get("l2_percent"),
        "arithmetic": max(main.get("fma_percent"), main.get("special_percent")),
        "instruction issue": main.get("issue_percent"),
    }
    name = max(units, key=lambda one: units[one])
    if units[name] >= UNIT_PERCENT and name != "DRAM bandwidth":
        return _term(name, f"ncu: {name} at {units[name]:.0f}% of what the unit sustains, the most of all")
    if main.get("shared_percent") >= UNIT_PERCENT:
        return Found(
            "shared memory", "memory",
            f"ncu: shared memory's pipe is busy {main.get('shared_percent'):.0f}% of the time, without many conflicts",
            ("keep values in registers: fewer reductions and transpositions of tiles", "larger tiles a warp"),
        )  # fmt: skip
    return None


def by_dram(counters: Sequence[KernelCounters]) -> Found | None:
    """Whether DRAM is nearest to what it sustains in the longest launch, though it is not full: where no model says
    what else there is."""
    main = _longest(counters)
    share = main.get("dram_percent") if main is not None else 0.0
    if share < UNIT_PERCENT:
        return None
    return _term("DRAM bandwidth", f"ncu: DRAM at {share:.0f}% of what it sustains, the most of all")


def _waiting(main: KernelCounters) -> Found | None:
    """No unit is busy: warps wait for memory, and there are too few of them."""
    few = main.get("occupancy_percent") < FEW_WARPS_PERCENT
    if (
        "occupancy_percent" in main.values
        and few
        and main.worst_stall in ("long_scoreboard", "barrier", "sleeping", "")
    ):
        stall = f"; most wait for {main.worst_stall}" if main.worst_stall else ""
        return _term(
            "bytes in flight",
            f"ncu: no unit is busy, with {main.get('occupancy_percent'):.0f}% of the warps that an SM holds{stall}",
        )
    return None


def _term(name: str, evidence: str) -> Found:
    bound, root, treatments = TERMS[name]
    return Found(bound, root, evidence, treatments)
