"""A session's runs: what is committed to before each, how it is made, and what goes on record after it."""

from __future__ import annotations

import asyncio
import contextlib

from tilewright.errors import UsageError
from tilewright.evaluation.evaluator import Tell
from tilewright.evaluation.results import CorrectnessResult, Level, Status
from tilewright.evaluation.snapshot import content_id
from tilewright.policy import settled, verdict_of_check
from tilewright.repository import Files
from tilewright.rules import Rules
from tilewright.session import whole
from tilewright.session.beginning import begin, go_back
from tilewright.session.book import Book
from tilewright.session.checkout import Checkout, Forged
from tilewright.session.history import Checked, Measured, SizesChecked, State
from tilewright.session.integrity import refs_of
from tilewright.session.jobs import Job
from tilewright.session.programs import files_of_version, programs_folder, tidy
from tilewright.session.rows import close_iteration
from tilewright.session.runs import Runs, runs_of
from tilewright.session.uncovered import with_uncovered
from tilewright.session.wrong import WrongResults, used_up, wrong_results
from tilewright.task import Backend
from tilewright.text import cut, few

IN_VAIN = 5
"""Runs of an iteration without a result, after which no more are made: a candidate that makes them void on purpose is
not to try until it passes by luck."""


class Trials:
    """The runs of the session that `book` holds."""

    def __init__(self, checkout: Checkout, book: Book) -> None:
        self._checkout = checkout
        self._book = book
        self._runs: Runs | None = None
        self._dropping: asyncio.Future[None] | None = None

    async def open(
        self,
        task: str,
        backend: Backend | None,
        arch: str,
        rules: Rules,
        include_dirty: bool,
        unconfined: bool,
        job: Job,
    ) -> None:
        """Begin a session and measure its baseline."""
        self._checkout.hold()
        job.tell("starting the referee")
        try:
            await self._drop_runs()
            started, self._runs = await begin(self._checkout, task, backend, arch, rules, include_dirty, unconfined)
            try:
                self._book.begin(started)
            except BaseException:
                await self._drop_runs()
                go_back(self._checkout, started.branch, started.came_from, started.base)
                raise
        except BaseException:
            self._checkout.release()
            raise
        await self.baseline(job)

    async def baseline(self, job: Job) -> None:
        """Check and measure the kernel as it was found: iteration 0. One that fails ends the session."""
        state = self._book.active()
        files = self._book.tree.at(state.incumbent_commit)
        if state.checked is None or not state.checked.result.passed:
            await self.check(files, job.tell)
        if state.checked is not None and state.checked.result.passed:
            await self.measure(files, job.tell)
        last = state.sizes or state.measured or state.checked
        assert last is not None
        if last.result.status is Status.VOID:
            raise UsageError(
                f"the baseline could not be measured: {last.result.message}; call start_session again, and where the "
                "task has to change first, `tilewright session end` before"
            )
        if not last.result.passed:
            self.finish(
                f"the baseline itself failed ({last.result.status}: {cut(last.result.message, 300)}); fix it first"
            )
            go_back(self._checkout, state.started.branch, state.started.came_from, state.started.base)
            return
        self._book.record(close_iteration(state, "baseline", None))
        self.stop_if_advised(state)

    async def check(self, files: Files, tell: Tell) -> None:
        """Check a candidate, and keep it reachable in git."""
        state = self._book.active()
        identity = content_id(files)
        repository = self._checkout.repository
        said = self._book.message(f"tilewright: candidate {identity}", identity)
        commit = repository.commit(files, state.incumbent_commit, said)
        place = f"{refs_of(state.started.session)}/candidates/{state.iteration}-{identity}"
        repository.keep(f"{place}-{len(self._book.entries)}", commit)
        known = self.wrong(state).known
        with self._book.committed("correctness", identity, known) as secret:
            if changed := self._book.tree.protected_changes():
                result = CorrectnessResult(
                    status=Status.TAMPERED,
                    message=f"protected files differ from the baseline: {few(changed)}; an experiment may "
                    f"change {', '.join(state.started.editable)} alone. {self._book.tree.how_to_restore(changed)}",
                )
            else:
                runs, versions = await self._ready_runs(state), self._versions(state)
                result = await runs.correctness(files, secret, self._time_left(state), tell, known, versions)
        incumbent = self._book.tree.at(state.incumbent_commit)
        result = with_uncovered(result, incumbent, files, state.ran.get(state.incumbent_candidate))
        verdict = verdict_of_check(result)
        checked = Checked(candidate=identity, commit=commit, secret=secret, result=result, verdict=verdict)
        self._record_check(state, checked)
        if result.baseline_wrong:
            self.finish(f"the baseline itself is wrong: {cut(result.message, 300)}; fix it, and start a new session")

    async def measure(self, files: Files, tell: Tell) -> None:
        """Measure a candidate against the incumbent. One that would be kept has to be right on many more hidden cases,
        and to win again on fresh seeds; its figures are then the second run's, which no luck has chosen. What is on
        record already is not run again."""
        state = self._book.active()
        if state.rows and state.in_vain >= IN_VAIN:
            raise UsageError(
                f"{state.in_vain} runs of this iteration ended without a result; call revert, then append_result. If "
                "other processes use the GPU, end them first"
            )
        if not state.gains:
            await self._measure(files, tell, confirms=False)
        if state.sizes_due:
            await self._check_sizes(files, lambda text: tell(f"checking more sizes: {text}"))
        if state.gains and not state.sizes_due and state.rows and state.verdict is None:
            await self._measure(files, lambda text: tell(f"confirming the gain: {text}"), confirms=True)

    async def _check_sizes(self, files: Files, tell: Tell) -> None:
        state = self._book.active()
        identity = content_id(files)
        timed = state.measured.result.cases if state.measured is not None else []
        replayed = [one.case for one in timed if one.level is Level.REPLAYED]
        with self._book.committed("sizes", identity) as secret:
            runs = await self._ready_runs(state)
            result = await runs.widely(files, secret, tell, self._versions(state), replayed=replayed)
        verdict = verdict_of_check(result)
        entry = SizesChecked(candidate=identity, secret=secret, result=result, verdict=verdict, replayed=replayed)
        self._record_check(state, entry)

    def _versions(self, state: State) -> list[Files]:
        """The baseline, and then what was kept, the latest first: what a candidate fails on is run on these."""
        return [] if state.started.harness else [self._book.tree.at(commit) for commit in state.versions]

    def _record_check(self, state: State, entry: Checked | SizesChecked) -> None:
        """Put a check on record. If it shows that what was kept is wrong, the branch goes back to the version before,
        and a ref keeps what was revoked."""
        before, repository = state.incumbent_commit, self._checkout.repository
        for number, kept in state.kept[len(state.kept) - entry.result.faulty :]:
            repository.keep(f"{refs_of(state.started.session)}/revoked/{number}-{kept.candidate}", kept.commit)
        self._book.record_run(entry)
        if state.incumbent_commit != before:
            repository.advance(state.started.branch, state.incumbent_commit, before, state.started.editable)

    def need_room(self, state: State) -> None:
        """Raises `UsageError` where candidates were wrong as often as the rules allow."""
        if text := used_up(self.wrong(state).count, state.started.rules.wrong_results):
            raise UsageError(text)

    def wrong(self, state: State) -> WrongResults:
        """The wrong results of the session's entry point, in all sessions of the repository."""
        return wrong_results(self._checkout.repository, state.started.entry, state.started.backend)

    async def _measure(self, files: Files, tell: Tell, confirms: bool) -> None:
        """One run, on record."""
        state = self._book.active()
        identity = content_id(files)
        incumbent = self._book.tree.at(state.incumbent_commit) if state.rows else None
        with self._book.committed("benchmark", identity) as secret:
            runs = await self._ready_runs(state)
            store = programs_folder(self._checkout.sandbox, state.started.session)
            left_s = self._time_left(state)
            result = await runs.benchmark(files, incumbent, secret, left_s, tell, confirms=confirms, store=store)
        verdict = settled(result, state.started.rules, incumbent is None, confirms)
        self._book.record_run(
            Measured(
                candidate=identity,
                incumbent=content_id(incumbent) if incumbent else None,
                confirms=confirms,
                secret=secret,
                result=result,
                verdict=verdict,
            )
        )

    async def compare(self, tell: Tell) -> str:
        """Replay the session's first program against its last, on record. Returns why that could not be done; an empty
        text where the records say so already, or the comparison is on record."""
        state = self._book.active()
        folder = programs_folder(self._checkout.sandbox, state.started.session)
        pairs = whole.pairs(state)
        if isinstance(pairs, str) or state.whole is not None:
            return ""
        if text := whole.missing(folder, pairs):
            return text
        tell("comparing the first program with the last")
        try:
            runs = await self._ready_runs(state)
            with self._book.committed("whole", state.incumbent_candidate) as secret:
                result = await runs.whole(pairs, folder, secret, self._time_left(state), tell)
        except Forged:
            raise
        except UsageError as error:
            return str(error)
        self._book.record_run(whole.compared(state, secret, result))
        return ""

    async def conclude(self, job: Job) -> None:
        """End the session as its last row says, once its first program was compared with its last."""
        why_not = await self.compare(job.tell)
        self.stop_if_advised(self._book.active(), why_not)

    async def _ready_runs(self, state: State) -> Runs:
        if self._runs is None:
            started = state.started
            runs = runs_of(started, self._checkout.repository)
            try:
                here = await runs.environment()
                if (device := here.device) != started.environment.device:
                    raise UsageError(
                        f"the session began on {started.environment.device}, this is {device}: figures of the two do "
                        "not compare; carry it to such a machine with `tilewright session export`, or start a new "
                        "session"
                    )
                if here.unprotected != started.environment.unprotected:
                    raise UsageError(
                        f"a candidate's code is {here.unprotected or 'confined'} here, and was "
                        f"{started.environment.unprotected or 'confined'} when the session began: go on where it "
                        "began, or end it with `tilewright session end` and start another"
                    )
                if here.startup != started.environment.startup:
                    raise UsageError(
                        "the packages that this Python can import, or what it loads unasked, are not those that the "
                        "session began with: undo that (`pip uninstall`, new .pth files), or end the session with "
                        "`tilewright session end` and start another"
                    )
            except BaseException:
                await runs.close()
                raise
            self._runs = runs
        return self._runs

    async def _drop_runs(self) -> None:
        runs, self._runs = self._runs, None
        if runs is not None:
            await runs.close()

    def tidy_programs(self, state: State) -> None:
        """Drop what no kept version needs of the session's device programs."""
        tidy(programs_folder(self._checkout.sandbox, state.started.session), self._book.entries)

    def finish(self, reason: str, not_compared: str = "") -> None:
        """End the session; its referee and workers go in the background. `not_compared`: why its first program was not
        compared with its last, where both were there."""
        assert self._book.state is not None
        self.tidy_programs(self._book.state)
        self._book.finish(reason, whole.note(self._book.state, not_compared))
        self._dropping = asyncio.ensure_future(self._drop_runs())

    def abandon(self, reason: str) -> str:
        """Set aside a session whose journal was changed while this process holds it."""
        said = self._book.abandon(reason)
        self._dropping = asyncio.ensure_future(self._drop_runs())
        return said

    def stop_if_advised(self, state: State, not_compared: str = "") -> None:
        """End the session where its last row says so. Where the end cannot be written, the next call writes it: the row
        is on record, and it is what the caller asked for."""
        if state.stops:
            with contextlib.suppress(OSError):
                self.finish(state.rows[-1].advice.reason, not_compared)

    def _time_left(self, state: State) -> float:
        return 60 * state.started.rules.iteration_minutes - state.seconds

    async def close(self) -> None:
        """End the referee and all below it."""
        await self._drop_runs()
        if self._dropping is not None:
            await asyncio.shield(self._dropping)
