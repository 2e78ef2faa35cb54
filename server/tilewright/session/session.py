"""The current session in the hands of one call: what is put on record, and what follows from that in git.

What is kept is on record before git shows it. Where a process is killed between the two, the next call's `repair` does
what is missing; a run or a revert that was broken off is made anew.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from tilewright.errors import UsageError
from tilewright.evaluation.evaluator import Tell
from tilewright.evaluation.results import BenchmarkResult, CaseRun, CorrectnessResult, Status
from tilewright.evaluation.seeds import commitment, new_secret
from tilewright.evaluation.snapshot import content_id
from tilewright.ledger import Journal
from tilewright.repository import Files, RepositoryError
from tilewright.session import whole
from tilewright.session.beginning import go_back
from tilewright.session.checkout import ANCHOR, Checkout, EditableFiles, journal_ref, refs_of
from tilewright.session.programs import files_of_version, programs_folder
from tilewright.session.records import (
    ENTRY,
    Begun,
    Checked,
    Ended,
    Entry,
    Measured,
    Resumed,
    Row,
    RunKind,
    Settled,
    Started,
    replayed_in,
)
from tilewright.session.rows import close_iteration, gain_of
from tilewright.session.standby import Standby
from tilewright.session.state import Phase, State
from tilewright.session.uncovered import same_syntax, with_uncovered
from tilewright.session.wrong import wrong_results
from tilewright.text import cut


class Session:
    """A session while its checkout is held."""

    def __init__(self, checkout: Checkout, journal: Journal[Entry], standby: Standby) -> None:
        self.checkout = checkout
        self.state = State.of(journal.entries)
        self.tree = EditableFiles(checkout.repository, self.state.started)
        self._journal = journal
        self._standby = standby
        self._repository = checkout.repository

    @classmethod
    def current(cls, checkout: Checkout, standby: Standby) -> Session | None:
        """The checkout's session as its journal has it. Raises `JournalAltered`, also where its commits say that."""
        folder = checkout.current_folder()
        journal = None if folder is None else checkout.journal(folder)
        if folder is None or journal is None or not journal.entries:
            return None
        checkout.need_anchors(folder.name, journal.hashes)
        return cls(checkout, journal, standby)

    @classmethod
    def begin(cls, checkout: Checkout, started: Started, standby: Standby) -> Session:
        """Open the journal of a new session, which becomes the checkout's current one."""
        folder = checkout.sandbox / started.session
        folder.mkdir(parents=True)
        journal = Journal(folder / "journal.jsonl", ENTRY)
        journal.append(started)
        checkout.set_current(folder)
        session = cls(checkout, journal, standby)
        checkout.write_table(folder, session.state)
        return session

    @property
    def _programs(self) -> Path:
        return programs_folder(self.checkout.sandbox, self.state.started.session)

    def record(self, entry: Entry) -> None:
        """Put one record on disk and into the state. Raises `OSError`, with nothing on record, where the disk takes no
        record."""
        self._journal.append(entry)
        self.state.apply(entry)
        if not isinstance(entry, Begun):
            self._anchor()
        if isinstance(entry, Row | Ended | Resumed) or self.state.moved_from:
            self.checkout.write_table(self._journal.path.parent, self.state)

    def _anchor(self) -> None:
        """Let a commit name the journal's last record. If this cannot be done, as on a full disk, the next record does
        it."""
        incumbent, session = self.state.incumbent_commit, self.state.started.session
        with contextlib.suppress(OSError, RepositoryError):
            commit = self._repository.recommit(incumbent, incumbent, self._message(f"tilewright: journal of {session}"))
            self._repository.keep(journal_ref(session), commit)

    def repair(self) -> None:
        """Bring branch, index, files and table to what the last record says. A fresh edit is never touched, nor are
        index and files while another branch is checked out. Raises `UsageError` where another hand moved the branch."""
        state, repository = self.state, self._repository
        branch, editable = state.started.branch, state.started.editable
        if moved := self.checkout.branch_moved(state):
            raise UsageError(moved)
        if state.moved_from:
            if repository.resolve(f"refs/heads/{branch}") == state.moved_from:
                repository.advance(branch, state.incumbent_commit, state.moved_from)
            if not self.checkout.elsewhere(state):
                with contextlib.suppress(RepositoryError):  # another git command holds the index: it is staged later
                    repository.stage(state.incumbent_commit, editable)
        if isinstance(self._journal.entries[-1], Row):
            self.checkout.write_table(self._journal.path.parent, state)

    # Runs

    def _drawn(self, run: RunKind, candidate: str, commit: str, known: list[CaseRun] | None = None) -> str:
        """Draw the secret of a run, and commit to it."""
        secret = new_secret()
        sha256 = commitment(secret)
        self.record(Begun(run=run, candidate=candidate, commit=commit, secret_sha256=sha256, known=known or []))
        return secret

    async def baseline(self, tell: Tell) -> None:
        """Check and measure the kernel as it was found: iteration 0. One that fails ends the session."""
        state = self.state
        files = self.tree.at(state.incumbent_commit)
        if state.checked is None or not state.checked.result.passed:
            await self.check(files, tell)
        if state.checked is not None and state.checked.result.passed:
            await self.measure(files, tell)
        assert state.checked is not None
        last: CorrectnessResult | BenchmarkResult = state.checked.result
        if state.measured is not None:
            last = state.measured.sizes or state.measured.first
        if last.status is Status.VOID:
            raise UsageError(
                f"the baseline could not be measured: {last.message}; call start_session again, and where the task has "
                "to change first, `tilewright session end` before"
            )
        if not last.passed:
            self.finish(f"the baseline itself failed ({last.status}: {cut(last.message, 300)}); fix it first")
            go_back(self.checkout, state.started.branch, state.started.came_from, state.started.base)
            return
        self.record(close_iteration(state, "baseline", None))
        if state.stops:
            self.finish(state.rows[-1].advice.reason)

    async def check(self, files: Files, tell: Tell) -> None:
        """Check a candidate, and keep it reachable in git."""
        state, repository = self.state, self._repository
        identity = content_id(files)
        commit = repository.commit(files, state.incumbent_commit, self._message(f"tilewright: candidate {identity}"))
        place = f"{refs_of(state.started.session)}/candidates/{state.iteration}-{identity[:16]}"
        repository.keep(f"{place}-{len(self._journal.entries)}", commit)
        known = wrong_results(repository, state.started.entry, state.started.backend).known
        secret = self._drawn("check", identity, commit, known)
        incumbent = self.tree.at(state.incumbent_commit)
        if same := bool(state.rows) and same_syntax(incumbent, files):
            result = CorrectnessResult(status=Status.PASSED)
        else:
            runs, versions = await self._standby.ready(state.started), self._versions()
            result = await runs.correctness(files, secret, self._time_left(), tell, known, versions)
            result = with_uncovered(result, incumbent, files)
        self._keep_revoked(result)
        self.record(Checked(candidate=identity, secret=secret, result=result, same=same))
        self.repair()
        self._end_of_baseline(result)

    async def measure(self, files: Files, tell: Tell) -> None:
        """Measure a candidate against the incumbent. One that gains has to be right on many more hidden cases, and to
        gain again on other inputs; then the figures of that second run count, by which it was not chosen."""
        state = self.state
        attempt, identity = state.attempt, content_id(files)
        checked = state.checked
        if checked is None or not checked.result.passed or checked.candidate != identity:
            raise UsageError("these files did not pass the last check; call run_correctness on them first")
        incumbent = self.tree.at(state.incumbent_commit) if state.rows else None
        assert attempt.begun is not None
        secret = self._drawn("benchmark", identity, attempt.begun.commit)
        runs = await self._standby.ready(state.started)
        store, left_s = self._programs, self._time_left()

        kept = files_of_version(store, state.incumbent_result) if incumbent is not None else {}
        first = await runs.benchmark(files, incumbent, secret, left_s, tell, confirms=False, store=store, kept=kept)
        sizes = again = None
        if state.sizes_due(first):
            sizes = await runs.widely(
                files,
                f"{secret}-sizes",
                _after("checking more sizes", tell),
                self._versions(),
                replayed=replayed_in(first),
            )
        if incumbent is not None and state.gains(first) and not first.modelled and (sizes is None or sizes.passed):
            left_s -= first.seconds
            how = _after("confirming the gain", tell)
            known = state.incumbent_result.cases if state.incumbent_result is not None else []
            again = await runs.benchmark(
                files,
                incumbent,
                f"{secret}-again",
                left_s,
                how,
                confirms=True,
                store=store,
                kept=kept,
                ordinary=[case.ordinary for case in known],
            )
        if sizes is not None:
            self._keep_revoked(sizes)
        self.record(Measured(secret=secret, first=first, sizes=sizes, again=again))
        self.repair()
        if sizes is not None:
            self._end_of_baseline(sizes)

    def _end_of_baseline(self, result: CorrectnessResult) -> None:
        """End the session if a check shows that its baseline is wrong: nothing can be judged then."""
        if result.baseline_wrong:
            self.finish(f"the baseline itself is wrong: {cut(result.message, 300)}; fix it, and start a new session")

    def _versions(self) -> list[Files]:
        """The baseline, and then what was kept, the latest first: what a candidate fails on is run on these."""
        return [] if self.state.started.harness else [self.tree.at(commit) for commit in self.state.versions]

    def _keep_revoked(self, result: CorrectnessResult) -> None:
        """Keep reachable what a check shows to be wrong of what was kept: the branch goes back from it."""
        for keep in self.state.kept[len(self.state.kept) - result.faulty :]:
            ref = f"{refs_of(self.state.started.session)}/revoked/{keep.iteration}-{keep.candidate[:16]}"
            self._repository.keep(ref, keep.commit)

    def _time_left(self) -> float:
        return 60 * self.state.started.rules.iteration_minutes - self.state.attempt.seconds

    # What becomes of a candidate

    def keep(self) -> str:
        """Commit what was judged on the session's branch; it is the incumbent then. Gives the commit."""
        state = self.state
        assert state.attempt.begun is not None and state.checked is not None and state.verdict is not None
        title = f"{state.started.task_name}: iteration {state.iteration} ({state.verdict.detail})"
        commit = self._recommit(state.attempt.begun.commit, "\n\n".join([title, *state.checked.result.notes]))
        self.record(Settled(commit=commit))
        self.repair()
        return commit

    def revert(self) -> str:
        """Put the editable files back to the incumbent's. Gives the ref that keeps what they held, or held before. The
        record comes last: a revert that is broken off is called again."""
        state, repository = self.state, self._repository
        present, place = self.tree.present(), f"{refs_of(state.started.session)}/reverted/{state.iteration}-"
        saved = ""
        if present != self.tree.at(state.incumbent_commit):
            message = self._message(f"tilewright: before revert {state.iteration}")
            saved = repository.commit(present, state.incumbent_commit, message)
            repository.keep(f"{place}{saved[:12]}", saved)
            repository.restore(state.incumbent_commit, state.started.editable)
        if state.checked is not None and state.attempt.settled is None:
            self.record(Settled())
        return f"{place}{saved[:12]}" if saved else next(iter(repository.refs(f"{place}*")), "")

    def close(self, name: str, root_cause: str | None) -> None:
        """Write the row of a candidate that was kept or taken back. What was kept is committed under that name."""
        state = self.state
        row = close_iteration(state, name, root_cause)
        settled = state.attempt.settled
        if settled is not None and settled.commit and state.checked is not None:
            title = f"{state.started.task_name}: {name} ({gain_of(row, state)})"
            text = "\n\n".join([title, f"Iteration {row.iteration}: {row.verdict.detail}", *state.checked.result.notes])
            row = row.model_copy(update={"commit": self._recommit(settled.commit, text)})
        self.record(row)
        with contextlib.suppress(OSError, RepositoryError):  # the row is on record: the next call does the rest
            self.repair()

    def _recommit(self, commit: str, text: str) -> str:
        return self._repository.recommit(commit, self.state.attempt.incumbent, f"{text}\n")

    def _message(self, text: str) -> str:
        """The message of a commit of the session: it names the record that the journal stands at."""
        return f"{text}\n\n{ANCHOR}: {self._journal.head}\n"

    # The end

    async def conclude(self, reason: str, tell: Tell, why_not: str = "") -> None:
        """End the session. Its first program is compared with its last, unless `why_not` says why not."""
        pairs, secret, direct = whole.pairs(self.state, self._programs), "", None
        if not isinstance(pairs, str) and not why_not:
            tell("comparing the first program with the last")
            try:
                runs = await self._standby.ready(self.state.started)
                secret = self._drawn("end", self.state.incumbent_candidate, self.state.incumbent_commit)
                limit_s = 60 * self.state.started.rules.iteration_minutes
                direct = await runs.whole(pairs, self._programs, secret, limit_s, tell)
            except UsageError as error:
                why_not = str(error)
        self.finish(reason, why_not, secret, direct)

    def finish(self, reason: str, why_not: str = "", secret: str = "", direct: BenchmarkResult | None = None) -> None:
        """Put the end on record; the referee and its workers go in the background. `why_not`: why the first program was
        not compared with the last, where both were there."""
        pairs = whole.pairs(self.state, self._programs)
        note = pairs if isinstance(pairs, str) else why_not
        self.record(Ended(reason=reason, secret=secret, direct=direct, note="" if direct is not None else note))
        self._standby.drop_later()

    def resume(self) -> None:
        """Take up a session that has ended. Raises `UsageError` where git is not as it left it."""
        if not self.state.rows:
            raise UsageError("the baseline of that session failed; call start_session without resume")
        if branch := self.checkout.elsewhere(self.state):
            raise UsageError(branch)
        self.repair()
        self.record(Resumed())

    @property
    def under_way(self) -> bool:
        return self.state.phase is not Phase.ENDED


def _after(what: str, tell: Tell) -> Tell:
    return lambda text: tell(f"{what}: {text}")
