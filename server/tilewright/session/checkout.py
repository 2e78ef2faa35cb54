"""One checkout and its current session on disk: the lock that one process holds, the folder, the journal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from tilewright.errors import UsageError
from tilewright.files import write_atomically
from tilewright.heads import HeadError
from tilewright.ledger import Journal, LedgerError, render_table
from tilewright.policy import VerdictKind
from tilewright.repository import SANDBOX, Files, Repository, RepositoryError
from tilewright.session import integrity, report, trailers
from tilewright.session.history import ENTRY, Entry, Kept, Started, State
from tilewright.text import few

_SET_ASIDE = (
    "put it back as it was if you can; else `tilewright session end` sets this session aside, and start_session can "
    "begin another"
)


class Forged(UsageError):
    """The journal is not the one that was written."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"the journal cannot be trusted: {error}; {_SET_ASIDE}")


class CheckoutBusy(UsageError):
    """Another process holds the checkout."""


class EditableFiles:
    """The files that a session's experiments may change, in the working tree and in commits."""

    def __init__(self, repository: Repository, started: Started) -> None:
        self._repository = repository
        self._started = started

    def read(self) -> Files:
        """All of them as they are now. Raises `UsageError` where one is missing or no plain file."""
        try:
            return self._repository.read(self._started.editable)
        except RepositoryError as error:
            raise UsageError(str(error)) from None

    def present(self) -> Files:
        """Those that can be read now."""
        found: Files = {}
        for name in self._started.editable:
            try:
                found |= self._repository.read([name])
            except RepositoryError:
                continue
        return found

    def at(self, commit: str) -> Files:
        """All of them as a commit has them."""
        tracked = self._repository.files(commit, self._started.editable)
        return {name: tracked[name] for name in self._started.editable}

    def protected_changes(self) -> list[str]:
        """Tracked files that differ from the baseline's although no experiment may change them."""
        editable = set(self._started.editable)
        return [name for name in self._repository.changed(self._started.baseline) if name not in editable]

    def how_to_restore(self, changed: list[str]) -> str:
        """The commands that bring protected files back."""
        known = self._repository.files(self._started.baseline, changed)
        back = [name for name in changed if name in known]
        new = [name for name in changed if name not in known]
        source = self._started.baseline[:12]
        commands = []
        if back:
            commands.append(f"`git restore --source={source} --staged --worktree -- {' '.join(back[:5])}`")
        if new:
            commands.append(f"`git rm --cached -- {' '.join(new[:5])}`")
        left = max(len(back) - 5, 0) + max(len(new) - 5, 0)
        rest = f" (of {left} more files, the next call says the same)" if left else ""
        return f"{' and '.join(commands)} restores it{rest}"


class Checkout:
    """A working tree, and who works in it."""

    def __init__(self, root: Path) -> None:
        """Raises `UsageError` where `root` is in no usable git repository."""
        try:
            self.repository = Repository(root)
        except RepositoryError as error:
            raise UsageError(str(error)) from None
        self.base = root.resolve()
        """The folder that paths of tasks are relative to."""
        self.root = self.repository.root
        self.sandbox = self.root / SANDBOX
        self._lock = FileLock(self.repository.git_dir / "tilewright.lock")
        self._holder = self.repository.git_dir / "tilewright-holder.json"

    def hold(self) -> None:
        """Take the checkout for this process. Raises `UsageError` naming the holder where another has it."""
        if self._lock.is_locked:
            return
        try:
            self._lock.acquire(timeout=0.1, poll_interval=0.01)  # `held_elsewhere` has it for less than that
        except Timeout:
            raise CheckoutBusy(
                f"this checkout is in use by {self._named_holder()}; end that process, or work in another worktree "
                "(`git worktree add ../other`)"
            ) from None
        since = datetime.now(UTC).isoformat(timespec="seconds")
        write_atomically(
            self._holder, json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}) + "\n"
        )

    def release(self) -> None:
        self._lock.release()

    def held_elsewhere(self) -> str:
        """Which other process holds the checkout; empty if none does. Nothing on disk changes."""
        if self._lock.is_locked:
            return ""
        try:
            handle = os.open(self._lock.lock_file, os.O_RDONLY)
        except FileNotFoundError:
            return ""
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return self._named_holder()
        finally:
            os.close(handle)
        return ""

    def _named_holder(self) -> str:
        try:
            data = json.loads(self._holder.read_text())
            return f"process {data['pid']} on {data['host']} since {data['since']}"
        except (OSError, ValueError, KeyError):
            return "another process"

    def current_folder(self) -> Path | None:
        """The folder of the session that this checkout is on, or None before its first."""
        pointer = self.sandbox / "current"
        if not pointer.is_file():
            return None
        name = pointer.read_text(encoding="utf-8").strip()
        folder = self.sandbox / name
        return folder if name and Path(name).name == name and (folder / "journal.jsonl").is_file() else None

    def request_end(self, reason: str) -> bool:
        """Ask the process that holds the checkout to end the session at its next call; False without a session."""
        folder = self.current_folder()
        if folder is not None:
            write_atomically(folder / "end-requested", reason + "\n")
        return folder is not None

    def requested_end(self) -> str | None:
        """Why the current session is to end, if a person asked for it."""
        folder = self.current_folder()
        request = None if folder is None else folder / "end-requested"
        return request.read_text(encoding="utf-8").strip() if request is not None and request.is_file() else None

    def forget_current(self) -> None:
        """Set the current session aside: its folder stays, but this checkout is on it no longer."""
        (self.sandbox / "current").unlink(missing_ok=True)

    def set_current(self, folder: Path) -> None:
        write_atomically(self.sandbox / "current", folder.name + "\n")

    def peek(self) -> State | None:
        """The current session's state, for a process that only looks. Raises `Forged`."""
        folder = self.current_folder()
        if folder is None:
            return None
        entries = self.read(folder).entries
        return State.of(entries) if entries else None

    def read(self, folder: Path) -> integrity.Chain:
        """A session's records, compared with the head that is kept outside the repository. Raises `Forged`."""
        try:
            return integrity.read_chain(folder)
        except (LedgerError, HeadError) as error:
            raise Forged(error) from None

    def findings(self, state: State) -> list[str]:
        """What another hand changed of a session that is not over, each with what to do; the journal apart."""
        folder = self.sandbox / state.started.session
        chain = self.read(folder)
        found = [] if state.ended is not None else integrity.refs_changed(self.repository, chain)
        if text := integrity.table_changed(folder, self.sandbox, state):
            found.append(text)
        if state.ended is None and (text := self.branch_moved(state)) and self.unrecorded(state, chain.hashes) is None:
            found.insert(0, text)
        return found

    def write_table(self, folder: Path, state: State) -> None:
        """Render `perf_results.md` and the report: the session's own, and the checkout's, which are the current
        session's."""
        text = render_table(state.table())
        for path in (folder / "perf_results.md", self.sandbox / "perf_results.md"):
            try:
                write_atomically(path, text)
            except OSError:  # no table rather than a stale one: the next call renders one that is missing
                with contextlib.suppress(OSError):
                    path.unlink()
        report.write(self.sandbox, folder.name, self.repository)

    def write_missing_table(self, folder: Path, state: State) -> None:
        """Render the tables again if one of them is gone."""
        if not all((place / "perf_results.md").is_file() for place in (folder, self.sandbox)):
            self.write_table(folder, state)

    def head_note(self, state: State) -> list[str]:
        """What to say of a session whose head should be kept outside the repository, but is not."""
        path = self.read(self.sandbox / state.started.session).missing_head
        return [integrity.missing_head_text(path)] if path else []

    def open_journal(self, folder: Path) -> Journal[Entry]:
        """Raises `Forged` where the journal was altered, or is not the one whose head is kept outside."""
        if (folder / "journal.jsonl").exists():
            self.read(folder)
        try:
            return Journal(folder / "journal.jsonl", ENTRY)
        except (LedgerError, HeadError) as error:
            raise Forged(error) from None

    def elsewhere(self, state: State) -> str:
        """What to do where another branch than the session's is checked out; empty where it is the session's."""
        branch = state.started.branch
        return "" if self.repository.branch() == branch else f"`git checkout {branch}`: the session is on that branch"

    def not_kept(self, state: State) -> str:
        """What to say, on the branch of a session that ended, of editable files that are not as it kept them. Empty
        if all are."""
        if self.elsewhere(state):
            return ""
        tree = EditableFiles(self.repository, state.started)
        there, kept = tree.present(), tree.at(state.incumbent_commit)
        names = [name for name in kept if there.get(name) != kept[name]]
        back = f"`git restore --source={state.incumbent_commit[:12]} -- {' '.join(names)}`"
        holds = "hold" if names[1:] else "holds"
        return f". {few(names)} {holds} what was not kept; {back} brings back what was" if names else ""

    def missing_record(self, state: State, hashes: list[str]) -> Kept | None:
        """The record of a commit that was made just before its process was killed, or the disk was full, if that is
        where the branch stands; its files are staged.

        `hashes` are those of the journal's records. Raises `UsageError` if no session put the branch where it stands.
        """
        moved = self.branch_moved(state)
        found = self.unrecorded(state, hashes) if moved else None
        if moved and found is None:
            raise UsageError(moved)
        if found is not None:
            self.repository.stage(found.commit, state.started.editable)
        return found

    def unrecorded(self, state: State, hashes: list[str]) -> Kept | None:
        """The session's own commit of what won, where the branch is at one that has no record."""
        tip, measured = self.repository.resolve(f"refs/heads/{state.started.branch}"), state.measured
        if tip is None or measured is None or state.verdict is None or state.verdict.kind is not VerdictKind.KEEP:
            return None
        said = trailers.parse(self.repository.message(tip))
        ours = (
            state.resolution is None
            and self.repository.parent(tip) == state.incumbent_commit
            and said.candidate == measured.candidate
            and said.session == state.started.session
            and said.seq < len(hashes)
            and said.hash == hashes[said.seq]
            and not integrity.content_problem(self.repository, state.started, tip, measured.candidate)
        )
        return Kept(candidate=measured.candidate, commit=tip) if ours else None

    def branch_moved(self, state: State) -> str:
        """Where the session's branch stands instead of at the incumbent, and what to do; empty where it is there."""
        tip = self.repository.resolve(f"refs/heads/{state.started.branch}")
        if tip == state.incumbent_commit:
            return ""
        branch, wanted = state.started.branch, state.incumbent_commit[:12]
        if tip is None:
            remedy = f"`git branch {branch} {wanted}` brings it back"
        elif self.repository.branch() == branch:
            remedy = f"`git reset --soft {wanted}` puts it back and leaves the files as they are"
        else:
            remedy = f"`git branch -f {branch} {wanted}` puts it back"
        return (
            f"branch {branch} {f'is at {tip[:12]}' if tip else 'is gone'}, but the session left it at {wanted}; "
            f"{remedy}{'' if state.ended else '; or end the session with `tilewright session end`'}"
        )
