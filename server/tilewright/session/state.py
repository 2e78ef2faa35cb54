"""Where a session stands: a fold over its records. Nothing is kept that they do not say."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from tilewright.cases import volume
from tilewright.evaluation.results import BenchmarkResult, CorrectnessResult, Level, Status
from tilewright.ledger import JournalAltered
from tilewright.policy import Reason, Verdict, VerdictKind, gains, settled, verdict_of_check
from tilewright.session.records import Begun, Checked, Ended, Entry, Measured, Resumed, Row, Settled, Started
from tilewright.task import case_label

SAME_SYNTAX = "the same syntax trees as the incumbent: nothing was run"


class Phase(StrEnum):
    """Where an iteration stands, and so what may come next."""

    BASELINE = "baseline"
    READY = "ready"
    CHECKED = "checked"
    FAILED = "failed"
    MEASURED = "measured"
    RESOLVED = "resolved"
    ENDED = "ended"


class Attempt:
    """What is on record of one iteration."""

    def __init__(self, iteration: int, versions: list[str]) -> None:
        self.iteration = iteration
        self.versions = versions
        """The commits of the baseline, and then of what was kept, the latest first, when it began."""
        self.begun: Begun | None = None
        """How the check began whose result counts."""
        self.running: Begun | None = None
        """The last run, if it has no result: it is under way, or was broken off."""
        self.checked: Checked | None = None
        self.measured: Measured | None = None
        self.settled: Settled | None = None
        self.row: Row | None = None
        self.seconds = 0.0

    @property
    def incumbent(self) -> str:
        """The commit that it began on."""
        return self.versions[1] if len(self.versions) > 1 else self.versions[0]

    @property
    def candidate(self) -> str:
        """What was checked last; empty before."""
        return self.checked.candidate if self.checked is not None else ""

    @property
    def commit(self) -> str:
        """What was kept, under its last name; empty if nothing was."""
        settled = self.settled.commit if self.settled is not None else ""
        return (self.row is not None and self.row.commit) or settled

    @property
    def result(self) -> BenchmarkResult | None:
        return self.measured.result if self.measured is not None else None

    @property
    def remarks(self) -> list[str]:
        """What a reader of its row should know of what was not looked at."""
        wider = self.measured.sizes if self.measured is not None else None
        found = self.checked.result if self.checked is not None else None
        checks = [check for check in (found, wider) if check is not None]
        notes = [note for check in checks for note in check.notes]
        if self.is_kept and self.result is not None and self.result.modelled:  # its sizes may be too large to run
            timed = max((case.case for case in self.result.cases), key=volume)
            ran = max((run.case for check in checks for run in check.cases), key=volume)
            if volume(timed) > volume(ran):
                sizes, most = (
                    {name: one[name] for name in one if timed.get(name) != ran.get(name)} for one in (timed, ran)
                )
                notes.append(f"never run at {case_label(sizes)} (largest: {case_label(most)})")
        return notes + (self.result.unjudged if self.result is not None else [])

    @property
    def is_kept(self) -> bool:
        """Whether its candidate was committed on the session's branch."""
        return self.settled is not None and bool(self.settled.commit)

    def take(self, entry: Begun | Checked | Measured) -> None:
        """Take one more record into account. A run that was void is not the candidate's doing, and takes no time of
        its iteration's."""
        if isinstance(entry, Begun):
            self.running = entry
            return
        if isinstance(entry, Checked):
            self.begun, self.checked, self.measured = self.running, entry, None
            runs: list[CorrectnessResult | BenchmarkResult | None] = [entry.result]
        else:
            self.measured = entry
            runs = [entry.first, entry.again]
        self.running = None
        self.seconds += sum(run.seconds for run in runs if run is not None and run.status is not Status.VOID)


class State:
    """What a session's records add up to."""

    def __init__(self, started: Started) -> None:
        self.started = started
        self.kept: list[Attempt] = []
        """What was kept, and not revoked since."""
        self.tried: dict[str, Verdict] = {}
        """Verdicts of candidates that need not be tried again."""
        self.left_out: dict[str, str] = {}
        """Why cases were left out of checks, by their labels."""
        self.attempts = [Attempt(0, [started.baseline])]
        """The iterations; the last is under way."""
        self.ended: Ended | None = None
        self.resumed_at = 0
        """How many rows there were when it was last taken up again."""
        self.moved_from = ""
        """Where the branch was before the last record, if that moved it."""

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> State:
        """The state after `entries`, the first of which is the session's start."""
        source = iter(entries)
        first = next(source, None)
        if not isinstance(first, Started):
            raise JournalAltered("a journal begins with the session's start")
        state = cls(first)
        for entry in source:
            state.apply(entry)
        return state

    def apply(self, entry: Entry) -> None:
        """Take one more record into account."""
        before = self.incumbent_commit
        match entry:
            case Begun():
                if entry.run != "end":
                    self.attempt.take(entry)
            case Checked():
                self.attempt.take(entry)
                self._judged(entry.result)
            case Measured():
                self.attempt.take(entry)
                if entry.sizes is not None:
                    self._judged(entry.sizes)
            case Settled():
                self.attempt.settled = entry
                if entry.commit and self.measured is not None:
                    self.kept.append(self.attempt)
            case Row():
                self._row(entry)
            case Ended():
                self.ended = entry
            case Resumed():
                self.ended, self.resumed_at = None, len(self.rows)
            case Started():
                raise JournalAltered("a journal has one start")
        self.moved_from = before if before != self.incumbent_commit else ""

    def _row(self, row: Row) -> None:
        attempt = self.attempt
        if row.verdict.reason is not Reason.WITHDRAWN:
            self.tried[row.candidate] = row.verdict
        attempt.row = row
        self.attempts.append(Attempt(len(self.attempts), self.versions))

    def _judged(self, result: CorrectnessResult) -> None:
        """Take into account what a check says of the session's own versions."""
        self.left_out |= {case_label(check.case): check.message for check in result.left_out}
        for _ in range(min(result.faulty, len(self.kept))):
            keep = self.kept.pop()
            where = f"revoked in iteration {self.iteration}: it fails on {result.failed_on[0].label}"
            verdict = Verdict(kind=VerdictKind.REVERT, reason=Reason.INCORRECT, detail=where)
            assert keep.row is not None
            trust = "; ".join(filter(None, [keep.row.trust, where]))
            new = {"latency_ms": None, "passed": False, "verdict": verdict, "trust": trust}
            keep.row = keep.row.model_copy(update=new)
            self.tried[keep.candidate] = verdict
            for later in self.rows[keep.iteration + 1 :]:  # lost against what was wrong
                if later.verdict.reason is not Reason.INCORRECT:
                    self.tried.pop(later.candidate, None)

    @property
    def rows(self) -> list[Row]:
        """The rows of the iterations that are over."""
        return [attempt.row for attempt in self.attempts if attempt.row is not None]

    @property
    def notes(self) -> list[str]:
        """What to know before its figures are trusted."""
        changed = self.started.rules.differences()
        return [
            *([f"rules that differ from the default: {', '.join(changed)}"] if changed else []),
            *self.started.notes,
            *(f"{label} was left out: {why}" for label, why in self.left_out.items()),
        ]

    @property
    def attempt(self) -> Attempt:
        """The iteration under way."""
        return self.attempts[-1]

    @property
    def checked(self) -> Checked | None:
        return self.attempt.checked

    @property
    def measured(self) -> Measured | None:
        return self.attempt.measured

    @property
    def iteration(self) -> int:
        """The number of the iteration under way."""
        return self.attempt.iteration

    @property
    def incumbent_commit(self) -> str:
        """The commit that a candidate has to beat."""
        return self.kept[-1].commit if self.kept else self.started.baseline

    @property
    def incumbent_candidate(self) -> str:
        return self.kept[-1].candidate if self.kept else self.attempts[0].candidate

    @property
    def versions(self) -> list[str]:
        """The commits of the baseline, and then of what was kept, the latest first."""
        return [self.started.baseline, *(keep.commit for keep in reversed(self.kept))]

    @property
    def keeps(self) -> list[BenchmarkResult]:
        return [keep.result for keep in self.kept if keep.result is not None]

    @property
    def baseline_result(self) -> BenchmarkResult | None:
        return self.attempts[0].result if self.rows else None

    @property
    def incumbent_result(self) -> BenchmarkResult | None:
        return self.kept[-1].result if self.kept else self.baseline_result

    @property
    def verdict(self) -> Verdict | None:
        """What is settled about the pending candidate."""
        if self.checked is None:
            return None
        if self.checked.same:
            return Verdict(kind=VerdictKind.REVERT, reason=Reason.SAME_PROGRAM, detail=SAME_SYNTAX)
        if (failed := verdict_of_check(self.checked.result)) is not None or self.measured is None:
            return failed
        measured = self.measured
        return settled(measured.first, measured.sizes, measured.again, self.started.rules, alone=not self.rows)

    def gains(self, first: BenchmarkResult) -> bool:
        """Whether a first benchmark run of the pending candidate is a gain, be that confirmed or not."""
        return gains(first, self.started.rules, alone=not self.rows)

    def sizes_due(self, first: BenchmarkResult) -> bool:
        """Whether a candidate with this first run is checked on hidden cases and classes of values, and by tests."""
        in_worker = first.level in (Level.IN_PROCESS, Level.MODELLED)
        return self.gains(first) and (self.started.sizes > 0 or in_worker or bool(self.started.tests))

    @property
    def phase(self) -> Phase:
        if self.ended is not None:
            return Phase.ENDED
        if not self.rows:
            return Phase.BASELINE
        if self.attempt.settled is not None:
            return Phase.RESOLVED
        verdict = self.verdict
        if verdict is not None:
            return Phase.MEASURED if verdict.kind is VerdictKind.KEEP else Phase.FAILED
        if self.checked is not None and self.checked.result.passed:
            return Phase.CHECKED
        return Phase.READY

    @property
    def stops(self) -> bool:
        """Whether the last row says that the session is over, and nobody has taken it up since."""
        return len(self.rows) > self.resumed_at and self.rows[-1].advice.action == "stop"

    @property
    def spent(self) -> int:
        """How many iterations are over since the session began, or was last taken up."""
        return max(self.iteration - max(self.resumed_at, 1), 0)
