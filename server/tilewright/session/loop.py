"""The loop itself: what may be done when, done, and put on record.

Knows nothing of MCP or the command line. A call that cannot work raises `UsageError`; a failing candidate is data. Each
call holds the checkout, reads the journal, acts and lets go: nothing is known between two calls but the runs on standby
and the work that no call has waited for.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from tilewright.configuration import configuration_of
from tilewright.errors import UsageError
from tilewright.evaluation.results import Status
from tilewright.evaluation.snapshot import content_id
from tilewright.gpu.lease import whose
from tilewright.ledger import JournalAltered
from tilewright.rules import Rules
from tilewright.session import show, whole
from tilewright.session.beginning import Working, begin, task_path
from tilewright.session.checkout import Checkout
from tilewright.session.export import carried
from tilewright.session.jobs import WAIT_S, Job, Jobs, Progress
from tilewright.session.programs import programs_folder
from tilewright.session.reports import IterationReport, StatusReport
from tilewright.session.rows import named
from tilewright.session.runs import Runs
from tilewright.session.session import Session
from tilewright.session.standby import Standby
from tilewright.session.state import Phase, State
from tilewright.session.steps import not_now, refuse_repeats, run_key, what_next, wrong_of
from tilewright.session.wrong import used_up
from tilewright.task import Backend
from tilewright.text import few

DEFAULT_ARCH = "sm_90"
NO_SESSION = "no session is under way; call start_session with the path of a task"
NOT_COMPARED = "the server ended before it"
_RUNS = ("run_correctness", "run_benchmark")
"""The tools of an iteration that need the machine: a run that no call waits for makes way for them."""


class Loop:
    """The sessions of one checkout, one at a time; each public method is a tool."""

    def __init__(self, root: Path) -> None:
        """`root` is fixed. Raises `UsageError` if `root` is in no usable repository."""
        self.checkout = Checkout(root)
        self.jobs = Jobs()
        self._standby = Standby(self.checkout.repository)
        self._job: Job | None = None
        """The session's latest."""

    async def start(
        self,
        task: str,
        progress: Progress,
        backend: Backend | None = None,
        arch: str = DEFAULT_ARCH,
        rules: Rules | None = None,
        include_dirty: bool = False,
        wait_s: float = WAIT_S,
        resume: bool = False,
    ) -> StatusReport:
        """Begin a session on the task at `task` (a path under the root), or go on with the one that is there; with
        `resume` also where that has ended."""
        session = Session.current(self.checkout, self._standby)
        if session is not None and session.state.stops and session.under_way and self._running is None:
            with self.checkout.held(), contextlib.suppress(UsageError):
                self._taken_up()
            session = Session.current(self.checkout, self._standby)
        if resume and (session is None or not session.under_way):
            return self._resumed(session, task)
        if session is not None and session.under_way:
            state = session.state
            if PurePosixPath(state.started.task) != task_path(self.checkout, task):
                raise UsageError(
                    f"a session on {state.started.task} is under way; go on with it (session_status), or end it "
                    "with `tilewright session end`"
                )
            if backend not in (None, state.started.backend):
                why = f"a session on {state.started.task} is under way on {state.started.backend}"
                raise UsageError(f"{why}: name no other backend, or end it with `tilewright session end`")
            if state.phase is not Phase.BASELINE:
                return self._as_it_was("this session was under way")
            work = self._run(lambda session, job: session.baseline(job.tell))
        else:
            work = partial(self._open, task, backend, arch, rules or Rules(), include_dirty)
        key = f"{task_path(self.checkout, task)} {backend} {arch} {include_dirty} {rules}"
        if (under_way := self._running) is not None and (under_way.what, under_way.key) != ("start_session", key):
            raise UsageError(under_way.busy)
        self._job = job = self.jobs.start("start_session", key, work)
        if not await job.attend(wait_s, progress):
            return show.starting(job, self.checkout.peek())
        return self.status()

    @contextlib.asynccontextmanager
    async def runs_on(self, found: Working, backend: Backend, arch: str) -> AsyncIterator[Runs]:
        """What runs a candidate outside the loop: the referee of the session on its task, if that is ready here and no
        file but the editable ones has changed since its baseline; else a new one, until the end of the block."""
        session = Session.current(self.checkout, self._standby)
        if session is not None and session.under_way:
            started = session.state.started
            ready, same = self._standby.of(started), (started.task, started.backend) == (str(found.folder), backend)
            if ready and same and {*self.checkout.repository.changed(started.baseline)} <= {*started.editable}:
                yield ready
                return
        runs = Runs(backend, arch, found.committed, found.folder, rules=found.task.file.rules)
        try:
            yield runs
        finally:
            await runs.close()

    def _resumed(self, session: Session | None, task: str) -> StatusReport:
        """Take up the current session, which has ended."""
        with self.checkout.held():
            if session is None or PurePosixPath(session.state.started.task) != task_path(self.checkout, task):
                raise UsageError("the last session here was on no such task; call start_session without resume")
            session.resume()
        return self._as_it_was("this session had ended")

    def _as_it_was(self, why: str) -> StatusReport:
        report = self.status()
        report.notes.append(f"{why}: the other arguments of start_session are ignored, its own rules hold")
        return report.model_copy(update={"summary": f"resumed: {report.summary}"})

    async def _open(
        self, task: str, backend: Backend | None, arch: str, rules: Rules, include_dirty: bool, job: Job
    ) -> None:
        """Begin a session and measure its baseline."""
        with self.checkout.held():
            job.tell("starting the referee")
            await self._standby.drop()
            async with begin(self.checkout, task, backend, arch, rules, include_dirty) as (started, runs):
                session = Session.begin(self.checkout, started, self._standby)
            self._standby.take(started.session, runs)
            await session.baseline(job.tell)

    def status(self) -> StatusReport:
        """Where the loop stands. Only looks: nothing is done, recorded or ended, whoever holds the checkout."""
        session = Session.current(self.checkout, self._standby)
        if session is None:
            return show.no_session()
        state = session.state
        if self._job is not None and self._job.done:
            self._job.mark_told()
        wrong = f"{wrong_of(self.checkout, state)} of {state.started.rules.wrong_results}"
        report = show.status(
            state, what_next(self.checkout, state), self._running, wrong, self.checkout.held_elsewhere()
        )
        if programs_folder(self.checkout.sandbox, state.started.session).is_dir():
            report.files["programs"] = f"sandbox/{state.started.session}/programs"
        report.notes.extend(carried(self.checkout.sandbox / state.started.session))
        if state.ended is None and (moved := self.checkout.branch_moved(state)):
            summary = f"{report.summary}. CHANGED BY ANOTHER HAND: see notes"
            return report.model_copy(update={"summary": summary, "notes": [moved, *report.notes], "next": moved})
        return report

    async def run_correctness(self, progress: Progress, wait_s: float = WAIT_S) -> IterationReport:
        """Check the working tree's editable files against the reference."""
        with self._acting("run_correctness", Phase.READY, Phase.CHECKED, Phase.FAILED, Phase.MEASURED) as session:
            state, files = session.state, session.tree.read()
            identity = content_id(files)
            known = state.checked if state.checked and state.checked.result.status is not Status.VOID else None
            key = run_key(state, identity)
            again = known is None or known.candidate != identity
            if again:
                if state.phase in (Phase.FAILED, Phase.MEASURED):
                    raise UsageError(not_now("run_correctness", what_next(self.checkout, state)))
                refuse_repeats(state, identity)
                if text := used_up(wrong_of(self.checkout, state), state.started.rules.wrong_results):
                    raise UsageError(text)
        if again:
            work = self._run(lambda session, job: session.check(files, job.tell))
            self._job = job = self.jobs.start("run_correctness", key, work)
            if not await job.attend(wait_s, progress):
                return show.waiting(job, state)
        state = self.state()
        if state.checked is None or state.checked.candidate != identity:
            raise UsageError("the editable files changed while they were checked; call run_correctness again")
        return show.judged(state, what_next(self.checkout, state))

    async def run_benchmark(self, progress: Progress, wait_s: float = WAIT_S) -> IterationReport:
        """Measure the candidate that passed against the incumbent, and give the verdict."""
        with self._acting("run_benchmark", Phase.CHECKED, Phase.MEASURED, Phase.FAILED) as session:
            state = session.state
            settled = state.measured is not None and state.verdict is not None
            if not settled:
                if state.checked is None or state.verdict is not None:
                    failed = (
                        "nothing is to be measured" if state.checked and state.checked.same else "this candidate failed"
                    )
                    raise UsageError(f"{failed}: {what_next(self.checkout, state)}")
                files = session.tree.read()
                if content_id(files) != state.checked.candidate:
                    raise UsageError("the editable files changed since they passed; call run_correctness on them first")
                key = run_key(state, state.checked.candidate)
        if not settled:
            work = self._run(lambda session, job: session.measure(files, job.tell))
            self._job = job = self.jobs.start("run_benchmark", key, work)
            if not await job.attend(wait_s, progress):
                return show.waiting(job, state)
        state = self.state()
        return show.judged(state, what_next(self.checkout, state))

    def checkpoint(self) -> IterationReport:
        """Commit the measured candidate on the session's branch; it becomes the incumbent."""
        with self._acting("git_checkpoint", Phase.MEASURED, Phase.RESOLVED) as session:
            state = session.state
            done = state.attempt.settled
            if done is None:
                assert state.attempt.begun is not None
                if not session.tree.are_checked(state):
                    raise UsageError(
                        "the editable files changed since they were measured; bring back what was measured with `git "
                        f"restore --source={state.attempt.begun.commit[:12]} -- {' '.join(state.started.editable)}`, "
                        "or call revert"
                    )
                session.keep()
            elif not done.commit:
                raise UsageError(not_now("git_checkpoint", what_next(self.checkout, state)))
            kept = f"committed {state.incumbent_commit[:12]} on {state.started.branch}: it is the incumbent now"
            return IterationReport(
                summary=show.said(kept, state.started),
                commit=state.incumbent_commit,
                next=what_next(self.checkout, state),
            )

    def revert(self) -> IterationReport:
        """Put the editable files back to the incumbent's; what they held stays reachable."""
        with self._acting("revert", *(phase for phase in Phase if phase is not Phase.BASELINE)) as session:
            state = session.state
            if state.attempt.is_kept:
                raise UsageError("this candidate is committed already; call append_result")
            ready = state.phase is Phase.READY
            recovery = session.revert()
            if ready and not recovery:
                raise UsageError("there is nothing to revert: the editable files equal the incumbent's")
            return IterationReport(
                summary=show.said(f"back at {state.incumbent_commit[:12]}", state.started),
                recovery=recovery or None,
                next=what_next(self.checkout, state),
            )

    async def append_result(
        self, optimization: str, progress: Progress, root_cause: str | None = None, wait_s: float = WAIT_S
    ) -> IterationReport:
        """Close the iteration with one row; every figure in it is the evaluator's. The row that ends the session stands
        first; then its first program is compared with its last, which the same call again waits for."""
        key = self.state().started.session
        if self._job is None or not self._job.answers("append_result", key):
            with self._acting("append_result", Phase.RESOLVED) as session:
                session.close(named(optimization), root_cause)
                state = session.state
            if not state.stops:
                return show.closed(state, state.iteration - 1, what_next(self.checkout, state))
        work = self._run(lambda session, job: session.conclude(session.state.rows[-1].advice.reason, job.tell))
        self._job = job = self.jobs.start("append_result", key, work)
        done = await job.attend(wait_s, progress)
        state = self.state()
        return show.closed(state, state.iteration - 1, what_next(self.checkout, state), None if done else job)

    def task_of(self, task: str) -> tuple[PurePosixPath, str]:
        """The folder of a task, by default the session's, and the architecture to look at."""
        state = self.checkout.peek()
        if not task and state is None:
            task = configuration_of(self.checkout.root).task
            if not task:
                raise UsageError("no session yet: give the path of a task's folder, which `tilewright init` writes")
        known = state is not None and not state.started.harness  # a command task's may be the CPU's
        arch = state.started.arch if state is not None and known else DEFAULT_ARCH
        return (task_path(self.checkout, task) if task or state is None else PurePosixPath(state.started.task)), arch

    async def end(self, reason: str, progress: Progress) -> str:
        """End the session, also one whose journal cannot be trusted, which is set aside. What is under way stays in the
        working tree. Its first program is compared with its last, unless another process measures on the GPU."""
        folder = self.checkout.current_folder()
        try:
            session = Session.current(self.checkout, self._standby)
        except JournalAltered as error:
            with self.checkout.held():
                self.checkout.forget_current()
            self._standby.drop_later()
            return f"session {folder.name if folder else ''} is set aside, its folder stays ({error})"
        if session is None:
            raise UsageError("there is no session to end")
        if not session.under_way:
            return "\n".join([f"nothing to do: {self._ended(session.state)}", *show.left_behind(session.state)])
        who = whose(session.state.started.environment.device_uuid)
        why_not = f"the GPU is in use by {who}" if who else ""
        work = self._run(lambda session, job: session.conclude(reason, job.tell, why_not), as_it_is=True)
        await self.jobs.start("session end", session.state.started.session, work).attend(math.inf, progress)
        state = self.state()
        rows = f"{len(state.rows)} row{'s' if len(state.rows) != 1 else ''}"
        text = whole.beside(state, f"session {state.started.session} ended after {rows}: {reason}")
        return "\n".join([f"{text}{self.checkout.not_kept(state)}", *show.left_behind(state)])

    def state(self) -> State:
        """Where the checkout's session stands. Raises `UsageError` where there is none."""
        state = self.checkout.peek()
        if state is None:
            raise UsageError(NO_SESSION)
        return state

    async def close(self) -> None:
        """Let go of everything: a running evaluation ends, the checkout is free."""
        await self.jobs.close()
        await self._standby.close()

    # Where the loop stands

    @property
    def _running(self) -> Job | None:
        """The session's run under way."""
        return self._job if self._job is not None and not self._job.done else None

    @contextlib.contextmanager
    def _acting(self, tool: str, *phases: Phase) -> Iterator[Session]:
        """The session under way in the hands of a tool that comes in these phases. Raises `UsageError`."""
        job = self._running
        makes_way = job is not None and job.what in _RUNS and tool in _RUNS and not job.attended
        waits = job is not None and (job.what == tool or makes_way)
        if job is not None and not waits:
            raise UsageError(job.busy)
        with self.checkout.held():
            session = self._taken_up(repaired=not waits)
            state = session.state
            if branch := self.checkout.elsewhere(state):
                raise UsageError(branch)
            if tool in _RUNS and (changed := session.tree.protected_changes()):
                how = session.tree.how_to_restore(changed)
                raise UsageError(f"protected files differ from the baseline's: {few(changed)}; {how}")
            if state.phase not in phases:
                raise UsageError(not_now(tool, what_next(self.checkout, state)))
            yield session

    def _taken_up(self, repaired: bool = True) -> Session:
        """The session under way, with git as its last record says. Raises `UsageError` where there is none."""
        session = Session.current(self.checkout, self._standby)
        if session is None:
            raise UsageError(NO_SESSION)
        if session.under_way and repaired:
            session.repair()
            if session.state.stops:
                session.finish(session.state.rows[-1].advice.reason, NOT_COMPARED)
        if not session.under_way:
            raise UsageError(
                f"{self._ended(session.state)}; call start_session to begin another, or start_session with "
                "resume=true to go on"
            )
        return session

    def _ended(self, state: State) -> str:
        """How a session ended, and what of the working tree it did not keep."""
        compared = "".join(f"; {text}" for text in whole.told(state))
        reason = state.ended.reason if state.ended is not None else ""
        return f"the session has ended ({reason}{compared}){self.checkout.not_kept(state)}"

    def _run(
        self, work: Callable[[Session, Job], Coroutine[Any, Any, None]], as_it_is: bool = False
    ) -> Callable[[Job], Coroutine[Any, Any, None]]:
        """Work of a job, which holds the checkout and has the session as it is then. `as_it_is`: also where git cannot
        be brought to what the last record says."""

        async def run(job: Job) -> None:
            with self.checkout.held():
                session = Session.current(self.checkout, self._standby)
                if session is None or not session.under_way:
                    raise UsageError("the session has ended meanwhile; call session_status")
                with contextlib.suppress(*((UsageError, OSError) if as_it_is else ())):
                    session.repair()
                await work(session, job)

        return run
