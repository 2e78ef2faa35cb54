"""A session's history: the records of its journal, and the state that they add up to.

The state is a pure fold over the records, so a server that starts anew stands exactly where the last one was killed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from tilewright.evaluation.results import BenchmarkResult, CaseRun, CorrectnessResult, Environment, Level, Status
from tilewright.ledger import LedgerError, TableRow
from tilewright.policy import Advice, Ratio, Reason, Verdict, VerdictKind
from tilewright.rules import Rules
from tilewright.task import Backend, Case, case_label
from tilewright.wire.record import Record

SERVER_ENDED = "the server ended during the run"
"""Why a run has no result whose server was closed, or killed."""


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
    eased: list[str] = Field([], description="rules that an argument set to let more pass than the task's own")
    harness: bool = Field(False, description="a repository task: the repository's own tests and benchmarks are trusted")

    @property
    def modelled(self) -> bool:
        """Whether latencies come from the roofline model, not from a clock."""
        return self.backend is Backend.CPU and not self.harness


RunKind = Literal["correctness", "benchmark", "sizes", "whole"]


class Committed(Record):
    """A secret was drawn for a run, and with it all its seeds; the secret's hash is on record before the run."""

    kind: Literal["committed"] = "committed"
    run: RunKind
    candidate: str
    secret_sha256: str
    known: list[CaseRun] = Field(default_factory=list, description="runs beside the drawn ones: earlier failures")


class Interrupted(Record):
    """A run that was committed to has no result, and never will."""

    kind: Literal["interrupted"] = "interrupted"
    run: RunKind
    candidate: str
    why: str
    secret: str | None = Field(None, description="revealed, unless it was lost with the server")


class Checked(Record):
    """A correctness run ended."""

    kind: Literal["checked"] = "checked"
    candidate: str
    commit: str = Field(description="the candidate's files as a commit, kept under a ref of the session")
    secret: str = Field(description="revealed: what the run's seeds were drawn from")
    result: CorrectnessResult
    verdict: Verdict | None

    @property
    def no_run(self) -> bool:
        """Whether no kernel ran, since protected files had been changed."""
        return self.result.status is Status.TAMPERED and not self.result.cases and not self.result.seconds


class Measured(Record):
    """A benchmark run ended."""

    kind: Literal["measured"] = "measured"
    candidate: str
    incumbent: str | None
    confirms: bool = Field(False, description="a second run, of a candidate that would be kept by the first")
    secret: str
    result: BenchmarkResult
    verdict: Verdict | None


class SizesChecked(Record):
    """A candidate that gains was checked on many hidden cases."""

    kind: Literal["sizes"] = "sizes"
    candidate: str
    secret: str
    result: CorrectnessResult
    verdict: Verdict | None
    replayed: list[Case] = Field([], description="visible cases whose classes of values the confirmation replays")

    @property
    def checked(self) -> int:
        """Hidden cases that the candidate was right on."""
        right = [check for check in self.result.cases if check.hidden and check.status is Status.PASSED]
        return len({case_label(check.case) for check in right})


class WholeCompared(Record):
    """The last program that the session kept was replayed against its first."""

    kind: Literal["whole"] = "whole"
    candidate: str
    secret: str
    result: BenchmarkResult
    product: Ratio = Field(description="of the speedups of all keeps")
    agrees: bool | None = Field(description="with the ratio of both programs; none where there is no such ratio")


RUN_OF: dict[type[Record], RunKind] = {
    Checked: "correctness", Measured: "benchmark", SizesChecked: "sizes", WholeCompared: "whole",
}  # fmt: skip


class Kept(Record):
    """The candidate was committed on the session's branch and is the incumbent."""

    kind: Literal["kept"] = "kept"
    candidate: str
    commit: str


class Reverted(Record):
    """The working tree went back to the incumbent; what it held is reachable under `recovery`."""

    kind: Literal["reverted"] = "reverted"
    to: str
    recovery: str | None


class Row(Record):
    """One row of the table."""

    kind: Literal["row"] = "row"
    iteration: int
    optimization: str
    latency_ms: float | None
    modelled: bool
    passed: bool
    verdict: Verdict
    advice: Advice
    root_cause: str | None = None
    trust: str = Field("", description="what a reader should know before this row is trusted, in a few words")


class Noticed(Record):
    """What a reader should know of how the journal's head was kept outside the repository."""

    kind: Literal["noticed"] = "noticed"
    what: Literal["head missing", "head unwritable", "head kept"]
    detail: str


class Ended(Record):
    """The session is over."""

    kind: Literal["ended"] = "ended"
    reason: str
    note: str = Field("", description="why the first program was not compared with the last")


Entry = Annotated[
    Started | Committed | Interrupted | Checked | Measured | SizesChecked | WholeCompared | Kept | Reverted | Row
    | Noticed | Ended,
    Field(discriminator="kind"),
]  # fmt: skip
ENTRY: TypeAdapter[Entry] = TypeAdapter(Entry)


class Phase(StrEnum):
    """Where an iteration stands, and so what may come next."""

    BASELINE = "baseline"
    READY = "ready"
    CHECKED = "checked"
    FAILED = "failed"
    MEASURED = "measured"
    RESOLVED = "resolved"
    ENDED = "ended"


class State:
    """What a session's records add up to."""

    def __init__(self, started: Started) -> None:
        self.started = started
        self.incumbent_commit = started.baseline
        self.incumbent_candidate = self.baseline_candidate = ""
        self.baseline_result: BenchmarkResult | None = None
        self.keeps: list[BenchmarkResult] = []
        self.kept: list[tuple[int, Kept]] = []
        """What was kept and not revoked since, with its iteration."""
        self.revoked: dict[str, Verdict] = {}
        """What became of candidates whose keeps were revoked."""
        self.left_out: dict[str, str] = {}
        """Why cases were left out of checks, by their labels."""
        self.rows: list[Row] = []
        self.ran: dict[str, list[str] | None] = {}
        """By candidate, the functions that ran in its last check, if they are known."""
        self.checked: Checked | None = None
        self.measured: Measured | None = None
        self.sizes: SizesChecked | None = None
        self.resolution: Kept | Reverted | None = None
        self.whole: WholeCompared | None = None
        self.ended: str | None = None
        self.not_compared = ""
        self.notices: list[Noticed] = []
        self.remarks: dict[int, list[str]] = {}
        """By iteration, what a reader of its row should know: runs without a result, and what was not looked at."""
        self.without_result: Committed | Interrupted | None = None
        """The last run, if it is under way or was broken off."""
        self.in_vain = 0
        """Runs of the iteration under way that were broken off or void."""
        self.seconds = 0.0

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> State:
        """The state after `entries`, the first of which is the session's start."""
        source = iter(entries)
        first = next(source)
        if not isinstance(first, Started):
            raise LedgerError("a journal begins with the session's start")
        state = cls(first)
        for entry in source:
            state.apply(entry)
        return state

    def apply(self, entry: Entry) -> None:
        """Take one more record into account."""
        if not isinstance(entry, Noticed):
            self.without_result = entry if isinstance(entry, Committed | Interrupted) else None
        match entry:
            case Interrupted():
                self.in_vain += 1
            case Checked():
                self.checked, self.measured, self.sizes = entry, None, None
                self.ran[entry.candidate] = entry.result.ran
                self._count(entry.result)
                self._judged(entry.result)
            case SizesChecked():
                self.sizes = entry
                self.in_vain += entry.result.status is Status.VOID
                self._judged(entry.result)
            case WholeCompared():
                self.whole = entry
            case Measured():
                self.measured = entry
                self._count(entry.result)
            case Kept():
                self.resolution = entry
                self.incumbent_commit, self.incumbent_candidate = entry.commit, entry.candidate
                self.kept.append((self.iteration, entry))
                if self.measured is not None:
                    self.keeps.append(self.measured.result)
            case Reverted():
                if self.checked is not None or self.measured is not None:
                    self.resolution = entry
            case Row():
                self._row(entry)
            case Noticed():
                self.notices.append(entry)
            case Ended():
                self.ended, self.not_compared = entry.reason, entry.note
            case _:
                pass

    def _row(self, row: Row) -> None:
        if row.iteration == 0 and self.measured is not None and self.checked is not None:
            self.incumbent_candidate = self.baseline_candidate = self.checked.candidate
            self.baseline_result = self.measured.result
        said = [note for run in (self.checked, self.sizes) if run is not None for note in run.result.notes]
        said += self.measured.result.unjudged if self.measured is not None else []
        if self.in_vain:
            said.append(f"{self.in_vain} of its runs ended without a result")
        self.remarks[row.iteration] = said
        self.rows.append(row)
        self.checked = self.measured = self.sizes = self.resolution = None
        self.seconds, self.in_vain = 0.0, 0

    def _count(self, result: CorrectnessResult | BenchmarkResult) -> None:
        """What a run takes of its iteration's time; a run that was void was not the candidate's doing."""
        if result.status is Status.VOID:
            self.in_vain += 1
        else:
            self.seconds += result.seconds

    def _judged(self, result: CorrectnessResult) -> None:
        """Take a check into account, with what it says of the session's own versions."""
        self.left_out |= {case_label(check.case): check.message for check in result.left_out}
        for _ in range(min(result.faulty, len(self.kept))):
            number, kept = self.kept.pop()
            self.keeps.pop()
            where = f"revoked in iteration {self.iteration}: it fails on {result.failed_on[0].label}"
            verdict = Verdict(kind=VerdictKind.REVERT, reason=Reason.INCORRECT, detail=where)
            row = self.rows[number]
            trust = "; ".join(filter(None, [row.trust, where]))
            new = {"latency_ms": None, "passed": False, "verdict": verdict, "trust": trust}
            self.rows[number], self.revoked[kept.candidate] = row.model_copy(update=new), verdict
        if result.faulty:
            self.incumbent_commit, self.incumbent_candidate = self.started.baseline, self.baseline_candidate
            for _, kept in self.kept:
                self.incumbent_commit, self.incumbent_candidate = kept.commit, kept.candidate

    @property
    def versions(self) -> list[str]:
        """The commits of the baseline, and then of what was kept, the latest first."""
        return [self.started.baseline, *(kept.commit for _, kept in reversed(self.kept))]

    @property
    def incumbent_result(self) -> BenchmarkResult | None:
        return self.keeps[-1] if self.keeps else self.baseline_result

    @property
    def total_speedup(self) -> float:
        """The product of all keeps' speedups."""
        return math.prod(result.speedup or 1.0 for result in self.keeps)

    @property
    def iteration(self) -> int:
        """The number of the iteration under way."""
        return len(self.rows)

    @property
    def verdict(self) -> Verdict | None:
        """What is settled about the pending candidate."""
        if self.sizes is not None and self.sizes.verdict is not None:
            return self.sizes.verdict
        if self.measured is not None and self.measured.verdict is not None:
            return None if self.sizes_due else self.measured.verdict
        return self.checked.verdict if self.checked is not None else None

    @property
    def gains(self) -> bool:
        """Whether a benchmark run says that the pending candidate gains, be that confirmed or not; or the baseline is
        measured."""
        if self.measured is None or not self.measured.result.passed:
            return False
        if self.measured.verdict is not None:
            return self.measured.verdict.kind is VerdictKind.KEEP
        return not self.rows or not self.measured.confirms

    @property
    def sizes_due(self) -> bool:
        """Whether the pending candidate gains, and waits for the check on hidden cases and classes of values."""
        if not self.gains or (self.sizes is not None and self.sizes.result.passed):
            return False
        in_worker = self.measured is not None and self.measured.result.level in (Level.IN_PROCESS, Level.MODELLED)
        return self.started.sizes > 0 or in_worker

    @property
    def phase(self) -> Phase:
        if self.ended is not None:
            return Phase.ENDED
        if not self.rows:
            return Phase.BASELINE
        if self.resolution is not None:
            return Phase.RESOLVED
        verdict = self.verdict
        if verdict is not None:
            return Phase.MEASURED if verdict.kind is VerdictKind.KEEP else Phase.FAILED
        if self.checked is not None and self.checked.result.passed:
            return Phase.CHECKED
        return Phase.READY

    @property
    def stops(self) -> bool:
        """Whether the last row says that the session is over."""
        return bool(self.rows) and self.rows[-1].advice.action == "stop"

    @property
    def stopped(self) -> bool:
        """Whether the candidate under way was not run, since protected files had been changed."""
        return self.phase is Phase.FAILED and self.checked is not None and self.checked.no_run

    def table(self) -> list[TableRow]:
        """The rows as the table shows them."""
        return [
            TableRow(
                iteration=row.iteration,
                optimization=row.optimization,
                latency_ms=row.latency_ms,
                modelled=row.modelled,
                passed=row.passed,
                status=row.verdict.kind,
                trust=row.trust,
            )
            for row in self.rows
        ]
