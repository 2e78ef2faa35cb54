"""The outcome of checking and measuring a candidate, as data: what the referee says and the journal keeps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

from pydantic import Field

from tilewright.compiler.resources import Resources
from tilewright.evaluation.ordinary import Ordinary
from tilewright.roofline.bounds import Ceilings
from tilewright.roofline.model import CallProfile
from tilewright.rules import DEFAULT
from tilewright.task import Backend, Case, Values, case_label
from tilewright.text import few
from tilewright.wire.record import Record


class Status(StrEnum):
    """How a check or a measurement ended. A failing kernel is data; only `void` is the evaluator's own fault."""

    PASSED = "passed"
    WRONG_VALUES = "wrong_values"
    NON_FINITE = "non_finite"
    WRONG_SHAPE = "wrong_shape"
    WRONG_DTYPE = "wrong_dtype"
    NO_OUTPUT = "no_output"
    INPUT_MODIFIED = "input_modified"
    OUT_OF_BOUNDS = "out_of_bounds"
    NONDETERMINISTIC = "nondeterministic"
    OVERWRITTEN = "overwritten"
    DEFECTIVE = "defective"
    LIBRARY_CALLS = "library_calls"
    FAILED = "failed"
    SKIPPED = "skipped"
    NOT_COLLECTED = "not_collected"
    TESTS_CHANGED = "tests_changed"
    SYNTAX_ERROR = "syntax_error"
    IMPORT_ERROR = "import_error"
    COMPILE_ERROR = "compile_error"
    RAISED = "raised"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    TAMPERED = "tampered"
    NOT_REPLAYED = "not_replayed"
    OTHER_LAUNCHES = "other_launches"
    VOID = "void"

    @property
    def is_incorrect(self) -> bool:
        """The kernel ran and its results are wrong."""
        return self is not Status.PASSED and self not in OURS and not self.is_crash

    @property
    def is_crash(self) -> bool:
        """The kernel gave no result at all."""
        return self in _CRASH


OURS = frozenset({Status.VOID, Status.NOT_REPLAYED, Status.OTHER_LAUNCHES})
"""What the evaluator alone says of a candidate: no worker's word for it counts."""
FROM_WORKERS = frozenset(Status) - OURS
"""What a worker may say of its candidate."""
_CRASH = {Status.SYNTAX_ERROR, Status.IMPORT_ERROR, Status.COMPILE_ERROR, Status.RAISED, Status.CRASHED, Status.TIMEOUT}


class Level(StrEnum):
    """What was timed, and so what remains to be believed. From the best protected to the least."""

    REPLAYED = "replayed"
    IN_PROCESS = "in-process"
    HARNESS = "harness"
    MODELLED = "modelled"


LEVELS = [*Level]
"""In their order."""


def library_calls(names: Sequence[str]) -> str:
    """What is said of a candidate that calls libraries, whose task forbids that."""
    return (
        f'library calls ran: {few(names)}; the task says library_calls = "forbid": do this in the candidate\'s own '
        "kernels, or, if it depends on no input, once while the module is imported"
    )


class CaseRun(Record):
    """What a candidate is run on."""

    case: Case
    values: Values = Field(Values.DRAWN, description="what the floating-point inputs held")
    strided: bool = Field(False, description="the inputs came in other strides and alignment than the task's own")

    @property
    def label(self) -> str:
        special = [f"{self.values} values"] if self.values is not Values.DRAWN else []
        special += ["other strides"] if self.strided else []
        return case_label(self.case) + (f" ({', '.join(special)})" if special else "")


class CaseCheck(CaseRun):
    """One run of a correctness check."""

    hidden: bool = Field(description="drawn by the referee from the task's ranges")
    informative: bool = Field(True, description="the reference was not constant on these inputs")
    status: Status
    message: str = Field("", description="the cause, where the case failed")
    max_abs_error: float | None = Field(None, description="largest |out − float64 reference|")
    rel_l2_error: float | None = Field(None, description="‖out − ref‖ / ‖ref‖")
    wrong_fraction: float | None = Field(None, description="share of elements outside the tolerance")
    undetermined: int = Field(0, description="elements that the inputs leave open: they were not compared")


class Defect(Record):
    """What the checker of the `cpu` backend found in a kernel, where it was first seen."""

    kind: str = Field(description="out_of_bounds, race, unwritten_memory, undetermined_padding, unvisited")
    file: str
    line: int
    message: str
    block: str = Field("", description="the block's index in the grid")
    case: Case = Field(default_factory=dict)
    count: int = 1

    @property
    def text(self) -> str:
        place = f"{self.file}:{self.line}: " if self.line else ""
        return f"{place}{self.kind}: {self.message}" + (f" (block {self.block})" if self.block else "")


class CorrectnessResult(Record):
    """A candidate against the reference, over every case and seed that was run."""

    status: Status
    message: str = Field("", description="the first failure, with its cause; empty where all passed")
    cases: list[CaseCheck] = Field(default_factory=list)
    defects: list[Defect] = Field(default_factory=list, description="of the `cpu` backend's checker")
    notes: list[str] = Field([], description="what to know before this is trusted; the first words stand in the row")
    unseen: list[str] = Field([], description="what the check did not look at")
    ran: list[str] | None = Field(None, description="the candidate's functions that ran, as PATH:NAME, if known")
    left_out: list[CaseCheck] = Field([], description="hidden cases on which the baseline fails as the candidate does")
    baseline_wrong: bool = Field(False, description="the baseline is wrong on a visible case: nothing can be judged")
    faulty: int = Field(0, description="of the kept versions, how many fail as the candidate does, the latest first")
    wanted: int = Field(0, description="of a check on many hidden cases, how many it would have run with time enough")
    output: str = Field("", description="the last lines that the candidate printed, where it failed")
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return self.status is Status.PASSED

    @property
    def left_open(self) -> str:
        """On how many runs, and where first, equals or roundings leave results open; empty if on none."""
        ties = [check for check in self.cases if check.undetermined]
        if not ties:
            return ""
        runs = f"{len(ties)} of {len(self.cases)} runs ({ties[0].undetermined} elements of {ties[0].label})"
        return f"equals or float32 roundings leave results open in {runs}: not compared"

    @property
    def all_unseen(self) -> str:
        """What a pass does not speak of, on one line."""
        return "; ".join([*self.notes, *([f"not looked at: {'; '.join(self.unseen)}"] if self.unseen else [])])

    @property
    def failed_on(self) -> list[CaseRun]:
        """The runs that did not pass, for later candidates of the task to be checked on, too."""
        known = set(CaseRun.model_fields)
        failed = [check for check in self.cases if check.status not in (Status.PASSED, Status.VOID)]
        seen = [CaseRun(case=defect.case) for defect in self.defects if defect.case]
        return [CaseRun.model_validate(check.model_dump(include=known)) for check in failed] + seen


class StoredProgram(Record):
    """A device program that was timed, by what it does and by its file."""

    identity: str = Field(description="SHA-256 of what it does; of equal programs the same")
    sha256: str = Field(description="of its file, held contents included")
    size: int = Field(ge=0, description="bytes of its file")
    note: str = Field("", description="why its file was not written")


class Sustained(Record):
    """A speedup over the incumbent in calls without a rest between them, where the GPU lowers its clock."""

    speedup: float
    low: float
    high: float
    mhz: int = Field(description="the SM clock behind the candidate's calls")
    joules: float | None = Field(None, description="of a call of the candidate, at the mean power of both versions")

    def __str__(self) -> str:
        text = f"sustained {100 * (self.speedup - 1):+.2f}% at {self.mhz} MHz"
        return text if self.joules is None else f"{text}, {self.joules:.3g} J a call"


class KernelUse(Record):
    """What one kernel of a call occupies."""

    name: str
    registers: int = Field(description="per thread")
    stack_bytes: int = Field(description="stack frame per thread; spilled registers live there")
    shared_bytes: int = Field(description="shared memory per CTA")
    warps_per_sm: int | None = Field(None, description="warps that fit on an SM; none if its limits are not known")
    max_warps_per_sm: int = 0
    limited_by: str = Field("", description="what keeps a further CTA off the SM")

    @classmethod
    def of(cls, name: str, held: Resources) -> KernelUse:
        """What a kernel of this name holds."""
        return cls(name=name, **{field: getattr(held, field) for field in cls.model_fields if field != "name"})


CAPTURED_ANEW = "incumbent captured anew"
"""What a row says where a program that was kept cannot be replayed here."""


class CaseTiming(Record):
    """One case of a benchmark run. Latencies in milliseconds: of a replayed program means over the rounds, else medians
    over the blocks."""

    case: Case
    level: Level
    weight: float = Field(1.0, gt=0, description="in what is said of all cases")
    latency_ms: float = Field(gt=0)
    incumbent_ms: float | None = Field(None, gt=0)
    speedup: float | None = Field(None, description="incumbent over candidate, paired; 1.05 is 5% faster")
    speedup_low: float | None = Field(None, description="lower end of its confidence interval")
    speedup_high: float | None = None
    same: bool = Field(False, description="both versions are the same program here")
    bounded: bool = Field(False, description="the gain is the wall clock's, which is smaller than the events'")
    mhz: int = Field(0, description="the SM clock behind the calls; 0 where it was not measured")
    steady: bool = Field(True, description="whether no call ran at a lower clock than an idle GPU has")
    same_bytes: bool = Field(False, description="all calls of both versions gave the same bytes on the same inputs")
    error_used: float | None = Field(None, description="of the error allowed, the largest share in what was judged")
    sustained: Sustained | None = Field(None, description="in calls without a rest, where the clock falls in these")
    empty_ms: float | None = Field(None, description="of a program that does nothing: the floor of a replayed one")
    pairs: int = Field(
        0, description="behind the interval: calls of each version in a round, or interleaved pairs of turns"
    )
    samples: list[tuple[float, float, float, float]] = Field(
        [],
        description="for each round or pair, ms a call: candidate and incumbent by device events, both by the wall "
        "clock; at the level in-process, and of a repository's own benchmark, the first two twice",
    )
    peak_bytes: int | None = Field(
        None, description="most bytes of the GPU's memory that the candidate's call took beyond its arguments"
    )
    programs: list[StoredProgram] = Field(
        [], description="the candidate's, where it was replayed: several where it tunes, the one that was timed first"
    )
    ordinary: Ordinary | None = Field(None, description="an ordinary call beside a replay, of a baseline or a keep")
    roofline_percent: float | None = Field(None, description="share of the bound by measured ceilings")
    bound: str | None = Field(None, description="what the roofline is bound by: memory or compute")
    work_bytes: float | None = Field(None, description="that a call has to move")
    kernels: list[KernelUse] = Field([], description="what a modelled call's kernels occupy; a program holds its own")
    note: str = ""

    @property
    def program(self) -> StoredProgram | None:
        """The one whose latency this is."""
        return self.programs[0] if self.programs else None


class BenchmarkResult(Record):
    """A candidate against the incumbent, over every case."""

    status: Status
    message: str = ""
    level: Level | None = Field(None, description="of the least protected case; none where nothing was timed")
    same: bool = Field(
        False,
        description="both versions are the same program in every case: nothing was timed; by the model, the same "
        "machine code is launched in the same way",
    )
    unconfirmed: str = Field("", description="why it is not known whether an ordinary call launches the same")
    uncompared: str = Field("", description="why an ordinary call's duration was not compared with a replay's")
    host: str = Field("", description="host time that the candidate adds to an ordinary call, in a few words")
    unjudged: list[str] = Field([], description="classes of values that were left out on a replayed case, with why")
    latency_ms: float | None = Field(None, description="geometric mean over the cases, by weight")
    speedup: float | None = Field(None, description="geometric mean over the cases, by weight, paired")
    speedup_low: float | None = None
    speedup_high: float | None = None
    resolution: float | None = Field(None, description="of a session's last program against itself: half width")
    cases: list[CaseTiming] = Field(default_factory=list)
    gpu: list[str] = Field([], description="what was wrong with the GPU meanwhile, in a few words each")
    output: str = ""
    seconds: float = 0.0
    phases: dict[str, float] = Field({}, description="where the seconds went")

    @property
    def sustained(self) -> str:
        """The least gain in calls without a rest, in words, with the clock; empty if the clock falls on no case."""
        slowed = [(case.sustained, case.case) for case in self.cases if case.sustained]
        if not slowed:
            return ""
        least, case = min(slowed, key=lambda one: one[0].speedup)
        return f"{least} on {case_label(case)}" if len(self.cases) > 1 else str(least)

    @property
    def passed(self) -> bool:
        return self.status is Status.PASSED

    @property
    def modelled(self) -> bool:
        """Whether latencies come from the roofline model, not from a clock."""
        return self.level is Level.MODELLED

    @property
    def harness(self) -> bool:
        """Whether figures are those of a repository's own benchmark."""
        return self.level is Level.HARNESS

    @property
    def roofline_percent(self) -> float | None:
        """The geometric mean of the cases' shares of their bound."""
        shares = [case.roofline_percent for case in self.cases if case.roofline_percent]
        weights = [case.weight for case in self.cases]
        return geometric_mean(shares, weights) if shares and len(shares) == len(self.cases) else None


class Environment(Record):
    """Where a session runs."""

    backend: Backend
    device: str
    arch: str
    device_uuid: str = ""
    driver: str = ""
    torch: str
    cuda_tile: str
    compiler: str
    python: str
    isolation: str = Field("not recorded", description="what the kernel enforces on a worker, and what it cannot")
    confined: bool = Field(True, description="files and system calls of a worker are restricted")
    unprotected: str = Field("", description="in two words, that a worker is not confined, or not in all")
    ceilings: Ceilings

    @property
    def toolkit(self) -> str:
        """What compiles cuTile's kernels here, as the modules that `autotune` writes say it, too."""
        return f"cuda-tile {self.cuda_tile}, tileiras {self.compiler}"


def geometric_mean(values: Sequence[float], weights: Sequence[float] = ()) -> float:
    """The weighted geometric mean of positive numbers. Raises ValueError on an empty list."""
    if not values:
        raise ValueError("a geometric mean needs at least one value")
    weights = weights or [1.0] * len(values)
    total = sum(weight * math.log(value) for weight, value in zip(weights, values, strict=True))
    return math.exp(total / sum(weights))


ORIGINAL = 0
"""The number, among variants, of the one that the others are compared with."""


class Modelled(Record):
    """What the model says of a variant: what its call does in each case, and its ms; or how it failed."""

    status: Status = Status.PASSED
    message: str = ""
    profiles: list[CallProfile] = Field(default_factory=list)
    ms: list[float] = Field(default_factory=list)

    def against(self, first: Modelled) -> list[Raced]:
        """The model's figures in the form of a race's against `first`, which passed; or on each case how it failed."""
        if self.status is not Status.PASSED:
            return [Raced(status=self.status, message=self.message) for _ in first.ms]
        width = 1 + DEFAULT.model_resolution
        return [
            Raced(ms=ms, speedup=before / ms, low=before / ms / width, high=before / ms * width)
            for ms, before in zip(self.ms, first.ms, strict=True)
        ]


class Raced(Record):
    """One config on one case: its ms, and its speedup over the original with its interval."""

    status: Status = Status.PASSED
    message: str = ""
    ms: float | None = None
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    rounds: int = Field(0, description="0: it ran alone, a few times")
    dropped: bool = Field(False, description="it left the race early, since others were faster")
    same: int | None = Field(None, description="the config with the same program, whose figures these are")
