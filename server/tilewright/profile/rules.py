"""The rules of a diagnosis: what can bound a call, by which signs, and what to try. The first rule that holds counts.

ncu's counters go before counts and the model. `python -m benchmarks.advice.bottlenecks judge FILE` shows what the rules
call 20 kernels with a planted bottleneck; the thresholds were set with these in view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from tilewright.compiler.treatments import DO_IN_TRITON, Treatment
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
    launches: float = 0.0
    launches_by: str = "counted"
    torch_operations: int = 0
    torch_names: str = ""
    torch_share: float = 0.0
    """Of the modelled latency."""
    kernel: str = ""
    lacks_tensor_cores: bool = False
    """It multiplies matrices by other instructions."""
    spill_bytes: int = 0
    """Per thread."""
    spill_share: float | None = None
    """Of the modelled latency; None where no model sees the kernel."""
    grid: str = ""
    idle_sms: float = 0.0
    """As a share, by the grid; likewise `last_wave`: the time of all waves over that of whole ones."""
    last_wave: float = 1.0
    warps: str = ""
    warps_percent: float = 100.0
    """Of those that an SM holds, by the code, for a kernel that no model sees."""
    term: str = ""
    """The largest of the model's terms that a rule names; empty where the model is far from the clock."""
    term_share: float = 0.0
    counters: KernelCounters = NOTHING

    @property
    def busy(self) -> float | None:
        """The share of a launch for which an SM works, on average."""
        elapsed = self.counters.get("elapsed_cycles")
        return self.counters.get("busy_cycles") / elapsed if elapsed else None

    @property
    def dram(self) -> float:
        return self.counters.get("dram_percent")

    @property
    def l2(self) -> float:
        return self.counters.get("l2_percent")

    @property
    def pipe(self) -> float:
        return max(self.counters.get("fma_percent"), self.counters.get("special_percent"))

    @property
    def issue(self) -> float:
        return self.counters.get("issue_percent")

    @property
    def shared(self) -> float:
        return self.counters.get("shared_percent")

    @property
    def occupancy(self) -> float:
        return self.counters.values.get("occupancy_percent", self.warps_percent)

    @property
    def occupancy_by(self) -> str:
        return "ncu" if "occupancy_percent" in self.counters.values else "counted"

    @property
    def load_bytes(self) -> float:
        return SECTOR_BYTES * self.counters.get("load_sectors")

    @property
    def spills(self) -> bool:
        if SECTOR_BYTES * self.counters.get("local_sectors") > self.work_bytes:
            return True
        return self.spill_bytes >= 64 if self.spill_share is None else self.spill_share > 0.15

    @property
    def tail(self) -> bool:
        return self.idle_sms > 0.25 or self.last_wave > 1.15 if self.busy is None else self.busy < 0.75


class Rule(NamedTuple):
    """A bound; `evidence` is formatted with the signs `s`. `term` is the model's name of it."""

    bound: Bound
    root_cause: RootCause
    holds: Callable[[Signs], bool]
    evidence: str
    remedies: tuple[str, ...]
    in_triton: tuple[str, ...] = ()
    term: str = ""


RULES = (
    Rule(
        "launch overhead", "launch", lambda s: s.launches * LAUNCH_MS >= 0.3 * s.latency_ms,
        "{s.launches_by}: {s.launches:g} launches of about 2 us each in {s.latency_ms:.4f} ms",
        ("fuse the launches into one kernel", "let the caller capture its calls in a CUDA graph"),
    ),
    Rule(
        "torch operations", "memory", lambda s: s.torch_share > 0.5,
        "counted: {s.torch_operations} torch operations, each through memory ({s.torch_names})",
        ("fuse the operations that follow each other into one kernel", "let torch.compile fuse them"),
    ),
    Rule(
        "missing tensor cores", "compute", lambda s: s.lacks_tensor_cores,
        "counted: {s.kernel} multiplies matrices, and has no tensor-core instruction",
        (f"{Treatment.TENSOR_CORE_DTYPE}: operands that tensor cores take",),
        (f"{Treatment.TENSOR_CORE_DTYPE}: {DO_IN_TRITON[Treatment.TENSOR_CORE_DTYPE]}",),
    ),
    Rule(
        "spilled registers", "memory", lambda s: s.spills,
        "counted: each thread stores {s.spill_bytes} bytes of registers",
        (f"{Treatment.MORE_WORKER_WARPS}: num_worker_warps=8", f"{Treatment.SMALLER_TILES}: half a tile dimension"),
        (f"{Treatment.MORE_WORKER_WARPS}: {DO_IN_TRITON[Treatment.MORE_WORKER_WARPS]}", "a smaller tile"),
    ),
    Rule(
        "tail wave", "latency", lambda s: s.tail, "{s.grid}",
        ("more blocks, or tiles that divide the grid into whole waves",
         "split the longest dimension over blocks (split-K)", "the heaviest blocks first, where they differ"),
    ),
    Rule(
        "bank conflicts", "memory", lambda s: s.shared >= 50 and s.counters.conflicts >= 0.4,
        "ncu: {s.counters.conflicts:.0%} of shared memory's wavefronts are bank conflicts, and its pipe is busy "
        "{s.shared:.0f}% of the time",
        ("allow_tma=False on the load and the store of a tile that is transposed or reduced across its rows: the "
         "compiler then lays it out without conflicts",
         "transpose a tile of a shorter dtype, or in the kernel that reads it"),
        ("another order or size of the tile that is transposed or reduced",),
    ),
    Rule(
        "uncoalesced access", "memory",
        lambda s: s.counters.sectors_a_request >= 18 and s.load_bytes > s.work_bytes,  # the widest coalesced load: 16
        "ncu: a warp's load touches {s.counters.sectors_a_request:.0f} sectors of 32 bytes, {s.load_bytes:.3g} bytes "
        "in all, and the work is {s.work_bytes:.3g}",
        (f"{Treatment.TILES_FOR_GATHERS}: a tile load where indices are regular",
         "let neighbouring elements of the tile be neighbours in memory: a tile, or indices, along the last dimension, "
         "transposed after"),
        ("let tl.arange run along the dimension whose elements are neighbours in memory",),
    ),
    Rule(
        "tensor cores", "compute", lambda s: s.counters.tensor >= max(60, s.dram),
        "ncu: tensor cores at {s.counters.tensor:.0f}% of what they sustain",
        ("autotune: tiles, num_worker_warps and num_ctas together", "a shorter dtype where the tolerance allows it"),
        ("search tiles, num_warps and num_stages together", "a shorter dtype where the tolerance allows"), "matmuls",
    ),
    Rule(
        "DRAM bandwidth", "memory", lambda s: s.dram >= 80, "ncu: DRAM at {s.dram:.0f}% of what it sustains",
        ("narrower storage types where the task allows them",), (), "DRAM bandwidth",
    ),
    Rule(
        "L2 bandwidth", "memory", lambda s: s.l2 >= min(max(60, 1.5 * s.dram), 90),  # up to 1.35 in streams
        "ncu: the L2 cache at {s.l2:.0f}% of what it sustains, DRAM at {s.dram:.0f}%",
        ("larger tiles: each input is read again once a tile", SWIZZLE), (), "L2 bandwidth",
    ),
    Rule(
        "arithmetic", "compute", lambda s: s.pipe >= max(60, s.issue, s.dram),
        "ncu: an arithmetic pipe at {s.pipe:.0f}% of what it sustains",
        ("exp2 for exp, with the factor folded in", f"{Treatment.FEWER_DIVISIONS}: one reciprocal a row"), (),
        "arithmetic",
    ),
    Rule(
        "instruction issue", "compute", lambda s: s.issue >= max(60, s.dram),
        "ncu: instructions issue {s.issue:.0f}% of the time",
        (f"{Treatment.WIDER_ACCESS}: fewer, wider loads", "num_worker_warps=8, so that more warps issue"),
        ("rows and strides that are multiples of 16: wider loads", "num_warps=8"), "instruction issue",
    ),
    Rule(
        "shared memory", "memory", lambda s: s.shared >= 60,
        "ncu: shared memory's pipe is busy {s.shared:.0f}% of the time, without many conflicts",
        ("keep values in registers: fewer reductions and transpositions of tiles", "larger tiles a warp"),
    ),
    Rule(
        "bytes in flight", "latency", lambda s: s.occupancy < 50 and s.counters.worst_stall in WAITING,
        "{s.occupancy_by}: no unit is busy, with {s.occupancy:.0f}% of the warps that an SM holds",
        (f"{Treatment.RAISE_OCCUPANCY}: more CTAs a SM", WIDER_LOADS),
        ("more warps a program (num_warps), each with fewer values", "smaller tiles, so that more fit"),
        "bytes in flight",
    ),
    Rule(
        "DRAM bandwidth", "memory", lambda s: s.dram >= 60,
        "ncu: DRAM at {s.dram:.0f}% of what it sustains, the most of all",
        ("narrower storage types where the task allows them",),
    ),
)  # fmt: skip
TERMS = {rule.term: rule for rule in RULES if rule.term}
UNEXPLAINED = Rule(
    "unexplained", "unknown", lambda s: True,
    "neither the launches, the counters nor the code explain {s.latency_ms:.4f} ms; stall reasons and hit rates would "
    "(ncu --set full)",
    (),
)  # fmt: skip


def holding(signs: Signs) -> tuple[Rule, str]:
    """The first rule that holds, else that of the model's largest term, and its evidence."""
    rule = next((rule for rule in RULES if rule.holds(signs)), None)
    if rule is None and signs.term:
        return TERMS[signs.term], f"modelled: {signs.term_share:.0%} of the latency by {signs.term}{signs.warps}"
    rule = rule or UNEXPLAINED
    return rule, rule.evidence.format(s=signs)
