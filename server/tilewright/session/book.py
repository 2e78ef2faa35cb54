"""The current session on record: its journal and the state it adds up to, held by one process at a time."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from tilewright.errors import UsageError
from tilewright.evaluation.results import CaseRun
from tilewright.evaluation.seeds import commitment, new_secret
from tilewright.heads import HeadError, HeadStore
from tilewright.ledger import Journal, LedgerError
from tilewright.policy import Reason, Verdict, VerdictKind
from tilewright.session import integrity, trailers, whole
from tilewright.session.checkout import Checkout, EditableFiles, Forged
from tilewright.session.history import (
    SERVER_ENDED,
    Checked,
    Committed,
    Ended,
    Entry,
    Interrupted,
    Kept,
    Measured,
    Noticed,
    Phase,
    Row,
    RunKind,
    SizesChecked,
    Started,
    State,
)


class Book:
    """Reads a checkout's current session, and writes it while this process holds the checkout."""

    def __init__(self, checkout: Checkout) -> None:
        self.checkout = checkout
        self.state: State | None = None
        self._journal: Journal[Entry] | None = None
        self._heads: HeadStore | None = None
        self._head_fails = False
        """Whether the head outside is behind the journal, since it could not be written."""
        self._head_noticed = False
        """Whether it is on record that the head cannot be written."""
        self._owed: list[Entry] = []
        """How runs ended that could not be put on record yet, as on a full disk."""

    def resume(self) -> None:
        """Take up the current session where its journal ends; a session that has ended is only read.

        Raises `UsageError` where another process holds the checkout, or journal and branch do not fit together.
        """
        folder = self.checkout.current_folder()
        if self.state is not None and self.under_way and self._journal is not None:
            self._check_untouched()
            self._settle_owed()
            self._note_missing_head()
            self.checkout.write_missing_table(self._journal.path.parent, self.state)
            return
        if folder is None or (self.state is not None and self._is_at(folder)):
            return
        self.state = None
        peeked = self.checkout.peek()
        if peeked is None or peeked.phase is Phase.ENDED:
            self.state = peeked
            if peeked is not None:
                self.checkout.write_missing_table(folder, peeked)
            return
        self.checkout.hold()
        try:
            self._open(folder)
            assert self._journal is not None
            state = State.of(self._journal.entries)
            missing = self.checkout.missing_record(state, self.hashes)
            if found := self.checkout.findings(state):  # before the table is rendered, which would hide a change of it
                raise UsageError(found[0])
        except BaseException:
            self.let_go()
            raise
        self.state = state
        self._check_untouched(taken_up=True)
        self._note_missing_head()
        self._keep_head()
        if missing is not None:
            self.record(missing)
        if (broken_off := _broken_off(self.entries)) is not None:
            self.record(broken_off)
        self.checkout.write_table(folder, state)

    def _open(self, folder: Path) -> None:
        self._journal = self.checkout.open_journal(folder)
        self._heads = HeadStore(folder.name)
        self._head_fails = self._head_noticed = integrity.head_is_failing(self._journal.entries)

    def look(self) -> State | None:
        """The current session as the next call that acts will take it up, or None. Nothing on disk changes. Raises
        `Forged`."""
        if self.state is not None and self.under_way and self._journal is not None:
            self._check_untouched()
            return State.of([*self.entries, *self._owed]) if self._owed else self.state
        folder = self.checkout.current_folder()
        chain = None if folder is None else self.checkout.read(folder)
        if chain is None or not chain.entries:
            return None
        state = State.of(chain.entries)
        if state.ended is None and not self.checkout.held_elsewhere():
            for entry in (self.checkout.unrecorded(state, chain.hashes), _broken_off(chain.entries)):
                if entry is not None:
                    state.apply(entry)
        return state

    def _check_untouched(self, taken_up: bool = False) -> None:
        """Raises `Forged` where another hand was at the journal or its outside head since this process holds them. A
        head that a kill left behind is only there when a session is just taken up."""
        assert self._journal is not None and self._heads is not None
        try:
            self._journal.check_untouched()
            head = self._heads.read()
            where = f"the head kept in {self._heads.path}"
            if head is not None and (
                text := integrity.outside_problem(self._journal.entries, self._journal.hashes, head, where)
            ):
                raise LedgerError(text)
            if head is not None and head.seq < len(self.hashes) - 1 and not (self._head_fails or taken_up):
                raise LedgerError(f"{where} was set back to record {head.seq + 1} of {len(self.hashes)}")
        except (LedgerError, HeadError) as error:
            raise Forged(error) from None

    def _note_missing_head(self) -> None:
        """Put on record that the head outside is missing, which also keeps it anew."""
        assert self._heads is not None
        if self._heads.read() is None and not self._head_fails and len(self.entries) > 1:
            detail = integrity.missing_head_text(str(self._heads.path))
            self.record(Noticed(what="head missing", detail=detail))

    def _is_at(self, folder: Path) -> bool:
        return self.state is not None and self.state.started.session == folder.name

    def abandon(self, reason: str) -> str:
        """End a session that cannot be taken up: on record where its journal can be trusted, else set aside."""
        folder = self.checkout.current_folder()
        if folder is None:
            raise UsageError("there is no session to end")
        self.checkout.hold()
        try:
            if self._journal is None:
                self._open(folder)
            else:
                self._check_untouched()
            self.state = None
            self.record(Ended(reason=reason))
            return f"session {folder.name} ended: {reason}"
        except UsageError as error:
            self.checkout.forget_current()
            return f"session {folder.name} is set aside, its folder stays ({error})"
        finally:
            self.let_go()
            self.state = None

    @property
    def under_way(self) -> bool:
        """Whether there is a session that has not ended."""
        return self.state is not None and self.state.phase is not Phase.ENDED

    def active(self) -> State:
        """The state of the session under way. Raises `UsageError` where there is none."""
        self.resume()
        if self.state is None:
            raise UsageError("no session is under way; call start_session with the path of a task")
        if self.state.phase is Phase.ENDED:
            left = self.checkout.not_kept(self.state)
            compared = "".join(f"; {text}" for text in whole.told(self.state))
            ended = f"{self.state.ended}{compared}"
            raise UsageError(f"the session has ended ({ended}); call start_session to begin another{left}")
        return self.state

    def begin(self, started: Started) -> None:
        """Open the journal of a new session, which becomes the checkout's current one. Where that fails, nothing of the
        session is left in the sandbox, and the checkout is free."""
        folder: Path = self.checkout.sandbox / started.session
        self.state = None
        try:
            self._open(folder)
            self.record(started)
            self.checkout.set_current(folder)
        except BaseException:
            self.let_go()
            self.state = None
            shutil.rmtree(folder, ignore_errors=True)
            raise
        assert self.state is not None
        self.checkout.write_table(folder, self.state)

    @contextlib.contextmanager
    def committed(self, run: RunKind, candidate: str, known: Sequence[CaseRun] = ()) -> Iterator[str]:
        """Draw the secret of a run and commit to it; a run that is broken off is on record too, with its secret.
        `known` are the runs that are not drawn from it."""
        secret = new_secret()
        self.record(Committed(run=run, candidate=candidate, secret_sha256=commitment(secret), known=[*known]))
        try:
            yield secret
        except BaseException as error:
            why = str(error)[:500] or repr(error)
            with contextlib.suppress(OSError):
                self.record_run(Interrupted(run=run, candidate=candidate, why=why, secret=secret))
            raise

    def record_run(self, entry: Entry) -> None:
        """Put on record how a run ended. Raises `OSError` where that cannot be written; the next call then writes it
        first, so that no run is made twice."""
        self._owed.append(entry)
        self._settle_owed()

    def _settle_owed(self) -> None:
        while self._owed:
            self.record(self._owed[0])
            del self._owed[0]

    def record(self, entry: Entry) -> None:
        """Put one record on disk and into the state, and then the journal's head outside. A row, and the session's end,
        also render the table and the report.

        Raises `Forged` where another hand was at the journal, and `OSError`, with nothing on record, where the disk
        takes no record."""
        assert self._journal is not None
        behind = self._head_fails and not self._head_noticed
        if behind and (error := self._keep_head()) is not None:  # two records would follow the head, and none say why
            raise error
        try:
            self._journal.append(entry)
        except LedgerError as error:
            raise Forged(error) from None
        if self.state is None:
            self.state = State.of(self._journal.entries)
        else:
            self.state.apply(entry)
        self._keep_head()
        if isinstance(entry, Row | Ended) or (isinstance(entry, Checked | SizesChecked) and entry.result.faulty):
            self.checkout.write_table(self._journal.path.parent, self.state)

    def _keep_head(self) -> OSError | None:
        """Put the journal's head on disk outside the repository; that this cannot be, or can again, is on record. Gives
        why it could not be put on record; the next record then waits for it."""
        assert self._journal is not None and self._heads is not None
        why = self._heads.write(len(self.hashes) - 1, self.head, self._journal.path)
        self._head_fails = bool(why)
        if bool(why) is not self._head_noticed:
            self._head_noticed = bool(why)
            detail = why or f"the head is kept in {self._heads.path} again"
            try:
                self.record(Noticed(what="head unwritable" if why else "head kept", detail=detail))
            except OSError as error:
                self._head_noticed = not self._head_noticed
                return error
        return None

    def finish(self, reason: str, note: str = "") -> None:
        """End the session and let go of the checkout. `note`: why its first program was not compared with its last."""
        self.record(Ended(reason=reason, note=note))
        self.let_go()

    def let_go(self) -> None:
        """Close the journal and free the checkout."""
        if self._journal is not None:
            if self.under_way:
                with contextlib.suppress(OSError, UsageError):
                    self._settle_owed()
            self._owed.clear()
            self._journal.close()
            self._journal = None
        self.checkout.release()

    @property
    def entries(self) -> list[Entry]:
        return self._journal.entries if self._journal is not None else []

    @property
    def hashes(self) -> list[str]:
        """The hashes of the journal's records."""
        assert self._journal is not None
        return self._journal.hashes

    def earlier_verdict(self, identity: str) -> Verdict | None:
        """What was settled about a content when it was tried before: nothing by a check that stopped at tampering, and
        nothing by a keep that was not taken up."""
        if self.state is not None and (verdict := self.state.revoked.get(identity)) is not None:
            return verdict
        kept = {entry.candidate for entry in self.entries if isinstance(entry, Kept)}
        for entry in self.entries:
            if isinstance(entry, Checked | Measured | SizesChecked) and entry.candidate == identity and entry.verdict:
                if entry.verdict.reason is Reason.TAMPERED and isinstance(entry, Checked):
                    continue
                if entry.verdict.kind is VerdictKind.KEEP and identity not in kept:
                    continue
                return entry.verdict
        return None

    def message(self, title: str, candidate: str = "") -> str:
        """The message of a commit of the session: it names the record that the journal stands at."""
        state = self.active()
        return trailers.compose(title, state.started.session, state.iteration, candidate, self.hashes)

    @property
    def head(self) -> str:
        """The hash that the journal's chain stands at."""
        assert self._journal is not None
        return self._journal.head

    @property
    def tree(self) -> EditableFiles:
        """The editable files of the session under way."""
        return EditableFiles(self.checkout.repository, self.active().started)


def _broken_off(entries: list[Entry]) -> Interrupted | None:
    """The record that is missing of a run that the server did not survive."""
    last = [entry for entry in entries if not isinstance(entry, Noticed)][-1]
    if not isinstance(last, Committed):
        return None
    return Interrupted(run=last.run, candidate=last.candidate, why=SERVER_ENDED)
