"""The current session on record: its journal and the state it adds up to, held by one process at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from tilewright.evaluation.seeds import commitment, new_secret
from tilewright.ledger import Journal
from tilewright.session.checkout import Checkout, EditableFiles, Misuse
from tilewright.session.history import Committed, Ended, Entry, Interrupted, Phase, Row, Started, State


class Book:
    """Reads a checkout's current session, and writes it while this process holds the checkout."""

    def __init__(self, checkout: Checkout) -> None:
        self.checkout = checkout
        self.state: State | None = None
        self._journal: Journal[Entry] | None = None

    def resume(self) -> None:
        """Take up the current session where its journal ends; a session that has ended is only read.

        Raises `Misuse` where another process holds the checkout, or journal and branch do not fit together.
        """
        folder = self.checkout.current_folder()
        if folder is None or (self.state is not None and (self.under_way or self._is_at(folder))):
            return
        self.state = None
        peeked = self.checkout.peek()
        if peeked is None or peeked.phase is Phase.ENDED:
            self.state = peeked
            return
        self.checkout.hold()
        try:
            self._journal = self.checkout.open_journal(folder)
            state = State.of(self._journal.entries)
            missing = self.checkout.missing_record(state)
        except BaseException:
            self.let_go()
            raise
        self.state = state
        if missing is not None:
            self.record(missing)
        if isinstance(last := self._journal.entries[-1], Committed):
            self.record(Interrupted(run=last.run, candidate=last.candidate, why="the server ended during the run"))
        self.checkout.write_table(folder, state)
        if state.rows and state.rows[-1].advice.action == "stop":  # killed between the last row and the end
            self.finish(state.rows[-1].advice.reason)

    def _is_at(self, folder: Path) -> bool:
        return self.state is not None and self.state.started.session == folder.name

    def abandon(self, reason: str) -> str:
        """End a session that cannot be taken up: on record where its journal can be trusted, else set aside."""
        folder = self.checkout.current_folder()
        if folder is None:
            raise Misuse("there is no session to end")
        self.checkout.hold()
        try:
            journal = self.checkout.open_journal(folder)
            journal.append(Ended(reason=reason))
            journal.close()
            return f"session {folder.name} ended: {reason}"
        except Misuse as error:
            self.checkout.forget_current()
            return f"session {folder.name} is set aside, its folder stays ({error})"
        finally:
            self.let_go()

    @property
    def under_way(self) -> bool:
        """Whether there is a session that has not ended."""
        return self.state is not None and self.state.phase is not Phase.ENDED

    def active(self) -> State:
        """The state of the session under way. Raises `Misuse` where there is none."""
        self.resume()
        if self.state is None:
            raise Misuse("no session is under way; call start_session with the path of a task")
        if self.state.phase is Phase.ENDED:
            raise Misuse(f"the session has ended ({self.state.ended}); call start_session to begin another")
        return self.state

    def begin(self, started: Started) -> None:
        """Open the journal of a new session, which becomes the checkout's current one."""
        folder: Path = self.checkout.sandbox / started.session
        self._journal, self.state = self.checkout.open_journal(folder), None
        self.record(started)
        self.checkout.set_current(folder)
        assert self.state is not None
        self.checkout.write_table(folder, self.state)

    @contextlib.contextmanager
    def committed(self, run: Literal["correctness", "benchmark"], candidate: str) -> Iterator[str]:
        """Draw the secret of a run and commit to it; a run that is broken off is on record too, with its secret."""
        secret = new_secret()
        self.record(Committed(run=run, candidate=candidate, secret_sha256=commitment(secret)))
        try:
            yield secret
        except BaseException as error:
            why = "cancelled" if isinstance(error, asyncio.CancelledError) else str(error)[:500] or repr(error)
            self.record(Interrupted(run=run, candidate=candidate, why=why, secret=secret))
            raise

    def record(self, entry: Entry) -> None:
        """Put one record on disk and into the state; a row also renders the table."""
        assert self._journal is not None
        self._journal.append(entry)
        if self.state is None:
            self.state = State.of([entry])
        else:
            self.state.apply(entry)
        if isinstance(entry, Row):
            self.checkout.write_table(self._journal.path.parent, self.state)

    def finish(self, reason: str) -> None:
        """End the session and let go of the checkout."""
        self.record(Ended(reason=reason))
        self.let_go()

    def let_go(self) -> None:
        """Close the journal and free the checkout."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        self.checkout.release()

    @property
    def entries(self) -> list[Entry]:
        return self._journal.entries if self._journal is not None else []

    @property
    def head(self) -> str:
        """The hash that the journal's chain stands at."""
        assert self._journal is not None
        return self._journal.head

    @property
    def tree(self) -> EditableFiles:
        """The editable files of the session under way."""
        return EditableFiles(self.checkout.repository, self.active().started)
