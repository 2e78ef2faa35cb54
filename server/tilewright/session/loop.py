"""The loop itself: what may be done when, done, and put on record.

Knows nothing of MCP or the command line. A call that cannot work raises `UsageError`; a failing candidate is data.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path, PurePosixPath

from tilewright.errors import UsageError
from tilewright.evaluation.results import Status
from tilewright.evaluation.snapshot import content_id
from tilewright.gpu.lease import whose
from tilewright.policy import ROOT_CAUSES
from tilewright.rules import Rules
from tilewright.session import show, whole
from tilewright.session.beginning import task_path
from tilewright.session.book import Book
from tilewright.session.checkout import Checkout, CheckoutBusy, EditableFiles, Forged
from tilewright.session.history import (
    Kept,
    Phase,
    Reverted,
    State,
)
from tilewright.session.integrity import refs_of
from tilewright.session.jobs import WAIT_S, Job, Jobs, Progress
from tilewright.session.programs import programs_folder
from tilewright.session.reports import (
    NAME_LIMIT,
    AppendReport,
    BenchmarkReport,
    CheckpointReport,
    CorrectnessReport,
    RevertReport,
    StatusReport,
)
from tilewright.session.rows import close_iteration
from tilewright.session.trials import Trials
from tilewright.session.wrong import used_up
from tilewright.task import Backend
from tilewright.text import few, printable

DEFAULT_ARCH = "sm_90"
_RUNS = ("run_correctness", "run_benchmark")
"""The tools of an iteration that need the machine: a run that no call waits for makes way for them."""


class Loop:
    """The sessions of one checkout, one at a time; each public method is a tool."""

    def __init__(self, root: Path, jobs: Jobs | None = None) -> None:
        """`root` is fixed; `jobs` is the server's. Raises `UsageError` if `root` is in no usable repository."""
        self.checkout = Checkout(root)
        self.jobs = jobs or Jobs()
        self._book = Book(self.checkout)
        self._trials = Trials(self.checkout, self._book)
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
        allow_unconfined: bool = False,
        wait_s: float = WAIT_S,
    ) -> StatusReport:
        """Begin a session on the task at `task` (a path under the root), or go on with the one that is there."""
        self._settle()
        state = self._book.state
        if state is not None and self._book.under_way:
            if PurePosixPath(state.started.task) != task_path(self.checkout, task):
                raise UsageError(
                    f"a session on {state.started.task} is under way; go on with it (session_status), or end it "
                    "with `tilewright session end`"
                )
            if state.phase is not Phase.BASELINE:
                report = self.status()
                note = "this session was under way: the arguments of start_session are ignored, its own rules hold"
                summary = f"resumed: {report.summary}"
                return report.model_copy(update={"summary": summary, "notes": [*report.notes, note]})
            work = self._trials.baseline
        else:
            work = partial(self._trials.open, task, backend, arch, rules or Rules(), include_dirty, allow_unconfined)
        key = f"{task_path(self.checkout, task)} {backend} {arch} {include_dirty} {allow_unconfined} {rules}"
        if (under_way := self._running) is not None and (under_way.what, under_way.key) != ("start_session", key):
            raise UsageError(under_way.busy)
        self._job = job = self.jobs.start("start_session", key, work)
        if not await job.attend(wait_s, progress):
            return show.starting(job, self._book.state)
        return self.status()

    def status(self) -> StatusReport:
        """Where the loop stands. Only looks: nothing is taken up, recorded or ended, whoever holds the checkout."""
        state = self._book.look()
        if state is None:
            return show.no_session()
        if self._job is not None and self._job.done:
            self._job.mark_told()
        wrong = f"{self._trials.wrong(state).count} of {state.started.rules.wrong_results}"
        report = show.status(state, self._next(state), self._running, wrong, self.checkout.held_elsewhere())
        if programs_folder(self.checkout.sandbox, state.started.session).is_dir():
            report.files["programs"] = f"sandbox/{state.started.session}/programs"
        return show.with_findings(report, [*self.checkout.findings(state), *self.checkout.head_note(state)])

    async def run_correctness(self, progress: Progress, wait_s: float = WAIT_S) -> CorrectnessReport:
        """Check the working tree's editable files against the reference."""
        state = self._ready_for("run_correctness", Phase.READY, Phase.CHECKED, Phase.FAILED, Phase.MEASURED)
        files = self._book.tree.read()
        identity = content_id(files)
        known = state.checked if state.checked and state.checked.result.status is not Status.VOID else None
        key = _key(state, identity)
        running = self._running is not None and self._running.answers("run_correctness", key)
        mended = state.stopped and not self._book.tree.protected_changes()
        if running or mended or known is None or known.candidate != identity:
            if state.phase in (Phase.FAILED, Phase.MEASURED) and not (running or mended):
                raise UsageError(f"run_correctness does not come now: {self._next(state)}")
            if not running:
                self._refuse_repeats(state, identity)
                self._trials.need_room(state)
            self._job = job = self.jobs.start("run_correctness", key, lambda job: self._trials.check(files, job.tell))
            if not await job.attend(wait_s, progress):
                return CorrectnessReport(
                    summary=show.said(f"still running: {job.message}", state.started), state="running", next=job.again
                )
        if state.checked is None or state.checked.candidate != identity:
            raise UsageError("the editable files changed while they were checked; call run_correctness again")
        return show.correctness(state.checked, self._next(state), state.started)

    async def run_benchmark(self, progress: Progress, wait_s: float = WAIT_S) -> BenchmarkReport:
        """Measure the candidate that passed against the incumbent, and give the verdict."""
        state = self._ready_for("run_benchmark", Phase.CHECKED, Phase.MEASURED, Phase.FAILED)
        if state.measured is None or state.verdict is None:
            if state.checked is None or not state.checked.result.passed:
                raise UsageError(f"this candidate failed: {self._next(state)}")
            files = self._book.tree.read()
            if content_id(files) != state.checked.candidate:
                raise UsageError("the editable files changed since they passed; call run_correctness on them first")
            key = _key(state, state.checked.candidate)
            self._job = job = self.jobs.start("run_benchmark", key, lambda job: self._trials.measure(files, job.tell))
            if not await job.attend(wait_s, progress):
                return BenchmarkReport(
                    summary=show.said(f"still running: {job.message}", state.started), state="running", next=job.again
                )
        assert state.measured is not None
        return show.benchmark(state, self._next(state))

    def checkpoint(self) -> CheckpointReport:
        """Commit the measured candidate on the session's branch; it becomes the incumbent."""
        state = self._ready_for("git_checkpoint", Phase.MEASURED, Phase.RESOLVED)
        if isinstance(state.resolution, Kept):  # the same call again, as after one whose record could not be written
            return self._kept(state, state.resolution)
        if state.phase is Phase.RESOLVED:
            raise UsageError(f"git_checkpoint does not come now: {self._next(state)}")
        assert state.measured is not None and state.checked is not None and state.verdict is not None
        files = self._book.tree.read()
        if content_id(files) != state.measured.candidate:
            raise UsageError(
                "the editable files changed since they were measured; bring back what was measured with `git restore "
                f"--source={state.checked.commit[:12]} -- {' '.join(state.started.editable)}`, or call revert"
            )
        title = f"tilewright: iteration {state.iteration} ({state.verdict.detail})"
        message = self._book.message("\n\n".join([title, *state.checked.result.notes]), state.measured.candidate)
        repository, branch = self.checkout.repository, state.started.branch
        commit = repository.commit(files, state.incumbent_commit, message)
        repository.advance(branch, commit, state.incumbent_commit, files)
        kept = Kept(candidate=state.measured.candidate, commit=commit)
        self._book.record(kept)
        return self._kept(state, kept)

    def _kept(self, state: State, kept: Kept) -> CheckpointReport:
        branch = state.started.branch
        summary = f"committed {kept.commit[:12]} on {branch}: it is the incumbent now"
        return CheckpointReport(
            summary=show.said(summary, state.started),
            commit=kept.commit,
            branch=branch,
            next=self._next(state),
        )

    def revert(self) -> RevertReport:
        """Put the editable files back to the incumbent's; what they held stays reachable."""
        state = self._ready_for("revert", *(phase for phase in Phase if phase not in (Phase.BASELINE, Phase.ENDED)))
        if isinstance(state.resolution, Kept):
            raise UsageError("this candidate is committed already; call append_result")
        repository, editable = self.checkout.repository, state.started.editable
        recovery = ""
        present = self._book.tree.present()
        if present != self._book.tree.at(state.incumbent_commit):
            said = self._book.message(f"tilewright: before revert {state.iteration}")
            saved = repository.commit(present, state.incumbent_commit, said)
            recovery = f"{refs_of(state.started.session)}/reverted/{state.iteration}-{saved[:12]}"
            repository.keep(recovery, saved)
            repository.restore(state.incumbent_commit, editable)
        elif lost := self._unrecorded_revert(state):
            recovery = lost
        elif state.phase is Phase.READY:
            raise UsageError("there is nothing to revert: the editable files equal the incumbent's")
        if recovery or state.resolution is None:  # the same call again changes nothing
            self._book.record(Reverted(to=state.incumbent_commit, recovery=recovery or None))
            self._trials.tidy_programs(state)
        return RevertReport(
            summary=show.said(f"back at {state.incumbent_commit[:12]}", state.started),
            to=state.incumbent_commit,
            recovery=recovery,
            left_alone=self._book.tree.protected_changes(),
            next=self._next(state),
        )

    def _unrecorded_revert(self, state: State) -> str:
        """The ref of what this iteration reverted just before its record could not be written; empty without one."""
        place = f"{refs_of(state.started.session)}/reverted/{state.iteration}-"
        known = {entry.recovery for entry in self._book.entries if isinstance(entry, Reverted)}
        refs = self.checkout.repository.refs(f"{refs_of(state.started.session)}/reverted/")
        return next((ref for ref in refs if ref.startswith(place) and ref not in known), "")

    async def append_result(
        self, optimization: str, progress: Progress, root_cause: str | None = None, wait_s: float = WAIT_S
    ) -> AppendReport:
        """Close the iteration with one row; every figure in it is the evaluator's. The row that ends the session stands
        first; then its first program is compared with its last, which the same call again waits for."""
        state = self._concluding()
        if state is None:
            state = self._ready_for("append_result", Phase.RESOLVED)
            name = " ".join(optimization.split())
            if not name or len(name) > NAME_LIMIT or printable(name) != name:
                raise UsageError(
                    "name the optimization in a few words, such as `TMA instead of gather`: at most "
                    f"{NAME_LIMIT} characters, all of them visible"
                )
            if root_cause is not None and root_cause not in ROOT_CAUSES:
                raise UsageError(f"root_cause is one of {', '.join(ROOT_CAUSES)}")
            self._book.record(close_iteration(state, name, root_cause))
        if state.stops and (self._untold(state) or whole.due(state)):
            if not self._untold(state):
                self._job = self.jobs.start("append_result", state.started.session, self._trials.conclude)
            job = self._job
            assert job is not None
            if not await job.attend(wait_s, progress):
                return show.appended(state, self._next(state), job)
        elif state.phase is not Phase.ENDED:
            self._trials.stop_if_advised(state)
        return show.appended(state, self._next(state))

    def _concluding(self) -> State | None:
        """The state of a session whose last row is on record and says that it is over, if its end is not, or if no call
        was told of it."""
        self._book.resume()
        state = self._book.state
        if state is None or not state.stops:
            return None
        return state if self._untold(state) or self._book.under_way else None

    def _untold(self, state: State) -> bool:
        """Whether a comparison at the session's end is under way, or no call was told of it."""
        return self._job is not None and self._job.answers("append_result", state.started.session)

    def task_of(self, task: str) -> tuple[PurePosixPath, str]:
        """The folder of a task, by default the session's, and the architecture to look at."""
        state = self._book.state or self.checkout.peek()
        if not task and state is None:
            raise UsageError("no session yet: give the path of a task's folder, which `tilewright init` writes")
        known = state is not None and not state.started.harness  # a command task's may be the CPU's
        arch = state.started.arch if state is not None and known else DEFAULT_ARCH
        return (task_path(self.checkout, task) if task or state is None else PurePosixPath(state.started.task)), arch

    async def end(self, reason: str, progress: Progress, compare: bool = True) -> str:
        """End the session, also one that cannot be taken up; what is under way stays in the working tree. Its first
        program is compared with its last, unless another process measures on the GPU, or `compare` is false."""
        try:
            state = self._book.active()
        except CheckoutBusy:
            raise
        except Forged:
            return self._trials.abandon(reason)
        except UsageError:
            if self._book.state is not None:
                raise
            return self._book.abandon(reason)
        why_not = "it was not asked for"
        if compare and whole.due(state):
            why_not = await self._compare(state, progress)
        self._trials.finish(reason, why_not)
        rows = f"{len(state.rows)} row{'s' if len(state.rows) != 1 else ''}"
        text = whole.beside(state, f"session {state.started.session} ended after {rows}: {reason}")
        return f"{text}{self.checkout.not_kept(state)}"

    async def _compare(self, state: State, progress: Progress) -> str:
        """Compare the first program with the last, if the GPU is free. Returns why not."""
        if who := whose(state.started.environment.device_uuid):
            return f"the GPU is in use by {who}"
        said: list[str] = []

        async def work(job: Job) -> None:
            said.append(await self._trials.compare(job.tell))

        await self.jobs.start("session end", state.started.session, work).attend(math.inf, progress)
        return said[0]

    async def close(self) -> None:
        """Let go of everything: a running evaluation ends, the checkout is free."""
        await self.jobs.close()
        await self._trials.close()
        self._book.let_go()
        self._book.state = None

    # Where the loop stands

    @property
    def _running(self) -> Job | None:
        """The session's run under way."""
        return self._job if self._job is not None and not self._job.done else None

    def _ready_for(self, tool: str, *phases: Phase) -> State:
        job = self._running
        makes_way = job is not None and job.what in _RUNS and tool in _RUNS and not job.attended
        if job is not None and job.what != tool and not makes_way:
            raise UsageError(job.busy)
        self._settle()
        state = self._book.active()
        branch = self.checkout.repository.branch()
        if branch != state.started.branch:
            raise UsageError(
                f"{f'branch {branch}' if branch else 'no branch'} is checked out, the session is on "
                f"{state.started.branch}: `git checkout {state.started.branch}`"
            )
        # a commit that was interrupted before its record is taken up
        if (missing := self.checkout.missing_record(state, self._book.hashes)) is not None:
            self._book.record(missing)
        if found := self.checkout.findings(state):
            raise UsageError(found[0])
        if tool == "run_benchmark" and (changed := self._book.tree.protected_changes()):
            raise UsageError(
                f"protected files differ from the baseline's: {few(changed)}; {self._book.tree.how_to_restore(changed)}"
            )
        if state.phase not in phases:
            raise UsageError(f"{tool} does not come now: {self._next(state)}")
        return state

    def _settle(self) -> None:
        """Take up the session, and end it if a person asked for that and nothing is running."""
        self._book.resume()
        state, idle = self._book.state, self._running is None
        if not idle or state is None or not self._book.under_way:
            return
        if (reason := self._reason_to_end(state)) is not None:
            unmade = "the server ended before it" if state.stops else "another process ended the session"
            self._trials.finish(reason, unmade)
            self._job = None

    def _reason_to_end(self, state: State) -> str | None:
        """Why a session that is under way is over: a person asked for it, or a kill came between its last row and its
        end."""
        return state.rows[-1].advice.reason if state.stops else self.checkout.requested_end()

    def _next(self, state: State) -> str:
        """What to do now, with an eye on the working tree."""
        if state.phase is Phase.ENDED:
            return show.next_step(state) + self.checkout.not_kept(state)
        if state.stops and whole.due(state):
            return "call append_result again: it compares the first program with the last, and ends the session"
        if (reason := self._reason_to_end(state)) is not None:
            return f"stop and report the table to the user: the loop's next call ends the session ({reason})"
        if there := self.checkout.elsewhere(state):
            return there
        tree = EditableFiles(self.checkout.repository, state.started)
        if (state.phase is Phase.READY or state.stopped) and (changed := tree.protected_changes()):
            then = ", then call run_correctness again" if state.stopped else ""
            return f"protected files differ from the baseline's: {tree.how_to_restore(changed)}{then}"
        if state.stopped:
            return "call run_correctness again: the protected files are as they were"
        if state.phase is Phase.READY and (
            text := used_up(self._trials.wrong(state).count, state.started.rules.wrong_results)
        ):
            return text
        present = tree.present()
        checked = state.checked is not None and content_id(present) == state.checked.candidate
        return show.next_step(state, present != tree.at(state.incumbent_commit), checked)

    def _refuse_repeats(self, state: State, identity: str) -> None:
        if identity == state.incumbent_candidate:
            raise UsageError("nothing was edited: the editable files equal the incumbent's")
        if (verdict := self._book.earlier_verdict(identity)) is not None:
            raise UsageError(
                f"this very content was tried before and ended as {verdict.kind} ({verdict.reason}: {verdict.detail}); "
                "another try would measure the same thing. Change something, or revert"
            )


def _key(state: State, identity: str) -> str:
    """What identifies a run of a candidate: in another iteration it is another run."""
    return f"{state.iteration} {identity}"
