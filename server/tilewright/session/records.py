"""The records of a session's journal. An iteration is what lies between two rows."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from tilewright.evaluation.results import BenchmarkResult, CaseRun, CorrectnessResult, Environment, Level, Status
from tilewright.policy import Advice, Verdict
from tilewright.rules import Rules
from tilewright.task import Backend, Case, case_label
from tilewright.wire.record import Record


class Started(Record):
    """A session begins. Paths are relative to the repository's root."""

    kind: Literal["started"] = "started"
    session: str
    task: str = Field(description="path of the task's folder")
    task_name: str
    entry: str = Field(description="what wrong results are counted by: the entry point, or the editable files")
    branch: str
    base: str = Field(description="commit that was checked out")
    came_from: str = Field("", description="branch that was checked out, if any")
    baseline: str = Field(description="commit whose protected files count")
    editable: list[str]
    backend: Backend
    arch: str
    environment: Environment
    intensity: float = Field(description="flops per byte, of the first benchmark case")
    intensity_class: str
    rules: Rules
    notes: list[str] = Field(default_factory=list, description="what a reader of the log should know of the task")
    sizes: int = Field(0, description="hidden cases that a candidate is right on before it is kept; 0: none are drawn")
    reference: Literal["task", "baseline"] = Field("task", description="what a candidate's outputs are compared with")
    tests: str = Field("", description="the command of a native task's tests that a candidate passes before it is kept")
    eased: list[str] = Field([], description="rules that an argument set to let more pass than the task's own")
    harness: bool = Field(False, description="a repository task: the repository's own tests and benchmarks are trusted")

    @property
    def modelled(self) -> bool:
        """Whether latencies come from the roofline model, not from a clock."""
        return self.backend is Backend.CPU and not self.harness


RunKind = Literal["check", "benchmark", "end"]


class Begun(Record):
    """A run begins. All its seeds follow from one secret, whose hash stands here. A run without a result was broken
    off."""

    kind: Literal["begun"] = "begun"
    run: RunKind
    candidate: str = Field(description="SHA-256 over the editable files")
    commit: str = Field(description="the candidate's files as a commit, kept under a ref of the session")
    secret_sha256: str
    known: list[CaseRun] = Field([], description="runs beside the drawn ones: what earlier candidates failed on")


class Checked(Record):
    """A candidate against the reference."""

    kind: Literal["checked"] = "checked"
    candidate: str
    secret: str = Field(description="revealed: what the run's seeds were drawn from")
    result: CorrectnessResult
    same: bool = Field(False, description="nothing was run: the syntax trees of its files are the incumbent's")


class Measured(Record):
    """A candidate against the incumbent. One that gains is checked on many hidden cases, and measured once more. The
    seeds of these runs follow from the secret with a word after it."""

    kind: Literal["measured"] = "measured"
    secret: str
    first: BenchmarkResult
    sizes: CorrectnessResult | None = None
    again: BenchmarkResult | None = None

    @property
    def result(self) -> BenchmarkResult:
        """The run whose figures count: of two the second."""
        return self.again or self.first

    @property
    def sizes_right(self) -> int:
        """Hidden cases that the candidate was right on before a keep."""
        cases = self.sizes.cases if self.sizes is not None else []
        return len({case_label(check.case) for check in cases if check.hidden and check.status is Status.PASSED})


def replayed_in(first: BenchmarkResult) -> list[Case]:
    """The visible cases whose classes of values the second run replays, so that the check on many sizes need not."""
    return [timing.case for timing in first.cases if timing.level is Level.REPLAYED]


class Settled(Record):
    """The candidate was kept, or taken back. Written before the branch moves, or the files change."""

    kind: Literal["settled"] = "settled"
    commit: str = Field("", description="what was kept, on the incumbent; empty: taken back")


class Row(Record):
    """One row of the table: the iteration is over."""

    kind: Literal["row"] = "row"
    iteration: int
    candidate: str
    optimization: str
    latency_ms: float | None
    modelled: bool
    passed: bool
    verdict: Verdict
    advice: Advice
    commit: str = Field("", description="what was kept, under the optimization's name; the branch moves there")
    root_cause: str | None = None
    trust: str = Field("", description="what a reader should know before this row is trusted, in a few words")


class Ended(Record):
    """The session is over."""

    kind: Literal["ended"] = "ended"
    reason: str
    secret: str = ""
    direct: BenchmarkResult | None = Field(None, description="its last program against its first, replayed")
    note: str = Field("", description="why the two were not compared")


class Resumed(Record):
    """The session had ended, and goes on from what it kept. Its rules count iterations anew."""

    kind: Literal["resumed"] = "resumed"


Entry = Annotated[
    Started | Begun | Checked | Measured | Settled | Row | Ended | Resumed,
    Field(discriminator="kind"),
]
ENTRY: TypeAdapter[Entry] = TypeAdapter(Entry)
