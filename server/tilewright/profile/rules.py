"""The rules of a diagnosis: what can bound a call, by which signs, and what to try. The first rule that holds counts.

ncu's counters go before counts and the model. `python -m benchmarks.advice.bottlenecks judge FILE` shows what the rules
call 20 kernels with a planted bottleneck; the thresholds were set with these in view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from tilewright.compiler.findings import DO_IN_TRITON, Treatment
from tilewright.gpu.specs import SECTOR_BYTES
from tilewright.policy import RootCause
from tilewright.profile.counters import KernelCounters
from tilewright.roofline.model import LAUNCH_MS

Bound = Literal[
    "DRAM bandwidth", "L2 bandwidth", "tensor cores", "missing tensor cores", "arithmetic", "instruction issue",
    "bytes in flight", "launch overhead", "tail wave", "spilled registers", "torch operations", "unexplained",
    "uncoalesced access", "bank conflicts", "shared memory",
]  # fmt: skip
WAITING = ("long_scoreboard", "barrier", "sleeping", "")
"""Stalls on memory, and none."""
SWIZZLE = "swizzle the blocks, so that neighbours share inputs"
WIDER_LOADS = "larger loads a block, or several rows of them at once"
NOTHING = KernelCounters(kernel="")


class Signs(NamedTuple):
    """What the rules look at: of the call, and of the kernel in it that takes longest."""

    latency_ms: float
    work_bytes: float
    launches: int = 0
    launches_by: str = "counted"
    torch_operations: int = 0
    torch_names: str = ""
    torch_share: float = 0.0
    """Of the latency."""
    kernel: str = ""
    lacks_tensor_cores: bool = False
    """It multiplies matrices by other instructions."""
    spill_bytes: int = 0
    """Per thread."""
    spill_share: float | None = None
    """Of the modelled latency; None where the latency was measured."""
    grid: str = "ncu: SMs work for part of the time only"
    idle_sms: float = 0.0
    """As a share, by the grid; likewise `last_wave`: the time of all waves over that of whole ones."""
    last_wave: float = 1.0
    warps_percent: float = 100.0
    """Of those that an SM holds, by the machine code."""
    counters: KernelCounters = NOTHING

    @property
    def busy(self) -> float | None:
        """The share of a launch for which an SM works, on average."""
        elapsed = self.counters.elapsed_cycles
        return self.counters.busy_cycles / elapsed if elapsed else None

    @property
    def pipe(self) -> float:
        return max(self.counters.fma_percent, self.counters.special_percent)

    @property
    def occupancy(self) -> float:
        return self.counters.occupancy_percent or self.warps_percent

    @property
    def occupancy_by(self) -> str:
        return "ncu" if self.counters.occupancy_percent else "counted"

    @property
    def load_bytes(self) -> float:
        return SECTOR_BYTES * self.counters.load_sectors

    @property
    def spills(self) -> bool:
        if SECTOR_BYTES * self.counters.local_sectors > self.work_bytes:
            return True
        return self.spill_bytes >= 64 if self.spill_share is None else self.spill_share > 0.15

    @property
    def tail(self) -> bool:
        return self.idle_sms > 0.25 or self.last_wave > 1.15 if self.busy is None else self.busy < 0.75


class Rule(NamedTuple):
    """A bound; `evidence` is formatted with the signs `s` and their counters `c`. `term` is the model's name of it."""

    bound: Bound
    root_cause: RootCause
    holds: Callable[[Signs, KernelCounters], bool]
    evidence: str
    remedies: tuple[str, ...]
    in_triton: tuple[str, ...] = ()
    term: str = ""


RULES = (
    Rule(
        "launch overhead", "launch", lambda s, c: s.launches * LAUNCH_MS >= 0.3 * s.latency_ms,
        "{s.launches_by}: {s.launches:g} launches of about 2 us each in {s.latency_ms:.4f} ms",
        ("fuse the launches into one kernel", "let the caller capture its calls in a CUDA graph"),
    ),
    Rule(
        "torch operations", "memory", lambda s, c: s.torch_share > 0.5,
        "{s.launches_by}: {s.torch_operations} torch operations, each through memory ({s.torch_names})",
        ("fuse the operations that follow each other into one kernel", "let torch.compile fuse them"),
    ),
    Rule(
        "missing tensor cores", "compute", lambda s, c: s.lacks_tensor_cores,
        "counted: {s.kernel} multiplies matrices, and has no tensor-core instruction",
        (f"{Treatment.TENSOR_CORE_DTYPE}: operands that tensor cores take",),
        (f"{Treatment.TENSOR_CORE_DTYPE}: {DO_IN_TRITON[Treatment.TENSOR_CORE_DTYPE]}",),
    ),
    Rule(
        "spilled registers", "memory", lambda s, c: s.spills,
        "counted: each thread stores {s.spill_bytes} bytes of registers",
        (f"{Treatment.MORE_WORKER_WARPS}: num_worker_warps=8", f"{Treatment.SMALLER_TILES}: half a tile dimension"),
        (f"{Treatment.MORE_WORKER_WARPS}: {DO_IN_TRITON[Treatment.MORE_WORKER_WARPS]}", "a smaller tile"),
    ),
    Rule(
        "tail wave", "latency", lambda s, c: s.tail, "{s.grid}",
        ("more blocks, or tiles that divide the grid into whole waves",
         "split the longest dimension over blocks (split-K)", "the heaviest blocks first, where they differ"),
    ),
    Rule(
        "bank conflicts", "memory", lambda s, c: c.shared_percent >= 50 and c.conflicts >= 0.4,
        "ncu: {c.conflicts:.0%} of shared memory's wavefronts are bank conflicts, and its pipe is busy "
        "{c.shared_percent:.0f}% of the time",
        ("allow_tma=False on the load and the store of a tile that is transposed or reduced across its rows: the "
         "compiler then lays it out without conflicts",
         "transpose a tile of a shorter dtype, or in the kernel that reads it"),
        ("another order or size of the tile that is transposed or reduced",),
    ),
    Rule(
        "uncoalesced access", "memory",
        lambda s, c: c.sectors_a_request >= 18 and s.load_bytes > s.work_bytes,  # the widest coalesced load: 16
        "ncu: a warp's load touches {c.sectors_a_request:.0f} sectors of 32 bytes, {s.load_bytes:.3g} bytes "
        "in all, and the work is {s.work_bytes:.3g}",
        (f"{Treatment.TILES_FOR_GATHERS}: a tile load where indices are regular",
         "let neighbouring elements of the tile be neighbours in memory: a tile, or indices, along the last dimension, "
         "transposed after"),
        ("let tl.arange run along the dimension whose elements are neighbours in memory",),
    ),
    Rule(
        "tensor cores", "compute", lambda s, c: c.tensor_percent >= max(60, c.dram_percent),
        "ncu: tensor cores at {c.tensor_percent:.0f}% of what they sustain",
        ("autotune: tiles, num_worker_warps and num_ctas together", "a shorter dtype where the tolerance allows it"),
        ("search tiles, num_warps and num_stages together", "a shorter dtype where the tolerance allows"), "matmuls",
    ),
    Rule(
        "DRAM bandwidth", "memory", lambda s, c: c.dram_percent >= 80,
        "ncu: DRAM at {c.dram_percent:.0f}% of what it sustains",
        ("narrower storage types where the task allows them",), (), "DRAM bandwidth",
    ),
    Rule(
        "L2 bandwidth", "memory",
        lambda s, c: c.l2_percent >= min(max(60, 1.5 * c.dram_percent), 90),  # streams have up to 1.35 times DRAM's
        "ncu: the L2 cache at {c.l2_percent:.0f}% of what it sustains, DRAM at {c.dram_percent:.0f}%",
        ("larger tiles: each input is read again once a tile", SWIZZLE), (), "L2 bandwidth",
    ),
    Rule(
        "arithmetic", "compute", lambda s, c: s.pipe >= max(60, c.issue_percent, c.dram_percent),
        "ncu: an arithmetic pipe at {s.pipe:.0f}% of what it sustains",
        ("exp2 for exp, with the factor folded in", f"{Treatment.FEWER_DIVISIONS}: one reciprocal a row"), (),
        "arithmetic",
    ),
    Rule(
        "instruction issue", "compute", lambda s, c: c.issue_percent >= max(60, c.dram_percent),
        "ncu: instructions issue {c.issue_percent:.0f}% of the time",
        (f"{Treatment.WIDER_ACCESS}: fewer, wider loads", "num_worker_warps=8, so that more warps issue"),
        ("rows and strides that are multiples of 16: wider loads", "num_warps=8"),
    ),
    Rule(
        "shared memory", "memory", lambda s, c: c.shared_percent >= 60,
        "ncu: shared memory's pipe is busy {c.shared_percent:.0f}% of the time, without many conflicts",
        ("keep values in registers: fewer reductions and transpositions of tiles", "larger tiles a warp"),
    ),
    Rule(
        "bytes in flight", "latency", lambda s, c: s.occupancy < 50 and c.worst_stall in WAITING,
        "{s.occupancy_by}: {s.occupancy:.0f}% of the warps that an SM holds, and no unit is seen to be busy",
        (f"{Treatment.RAISE_OCCUPANCY}: more CTAs a SM", WIDER_LOADS),
        ("more warps a program (num_warps), each with fewer values", "smaller tiles, so that more fit"),
        "bytes in flight",
    ),
    Rule(
        "DRAM bandwidth", "memory", lambda s, c: c.dram_percent >= 60,
        "ncu: DRAM at {c.dram_percent:.0f}% of what it sustains, the most of all",
        ("narrower storage types where the task allows them",),
    ),
)  # fmt: skip
TERMS = {rule.term: rule for rule in RULES if rule.term}
UNEXPLAINED = Rule(
    "unexplained", "unknown", lambda s, c: True,
    "neither the launches, the counters nor the code explain {s.latency_ms:.4f} ms; stall reasons and hit rates would "
    "(ncu --set full)",
    (),
)  # fmt: skip


def holding(signs: Signs) -> tuple[Rule, str]:
    """The first rule that holds, and its evidence."""
    rule = next((rule for rule in RULES if rule.holds(signs, signs.counters)), UNEXPLAINED)
    return rule, rule.evidence.format(s=signs, c=signs.counters)
