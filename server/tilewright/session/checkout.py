"""One checkout and its current session on disk: the lock that one call holds, the folder, the journal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from tilewright.errors import UsageError
from tilewright.evaluation.snapshot import content_id
from tilewright.files import write_atomically
from tilewright.gpu.lease import holder_of
from tilewright.ledger import Journal, JournalAltered
from tilewright.repository import SANDBOX, Files, Repository, RepositoryError
from tilewright.session import report
from tilewright.session.records import ENTRY, Entry, Started
from tilewright.session.rows import render_table
from tilewright.session.state import State
from tilewright.text import few

ANCHOR = "Tilewright-Journal"
"""The trailer by which a commit under a ref of a session names the journal's last record when it was made."""
PAGES = (".md", ".rst")
"""Suffixes of files that no run imports: an edit of one is no tampering."""


def refs_of(session: str) -> str:
    """Where a session's refs lie."""
    return f"refs/tilewright/{session}"


def journal_ref(session: str) -> str:
    """The ref of the commit that names the journal's last record."""
    return f"{refs_of(session)}/journal"


def anchor(message: str) -> str:
    """The hash of the record that a commit's message names; empty if it names none."""
    lines = message.rstrip().rpartition("\n\n")[2].splitlines()
    return next((line.partition(": ")[2].strip() for line in lines if line.startswith(f"{ANCHOR}: ")), "")


class EditableFiles:
    """The files that a session's experiments may change, in the working tree and in commits."""

    def __init__(self, repository: Repository, started: Started) -> None:
        self._repository = repository
        self._started = started

    def read(self) -> Files:
        """All of them as they are now. Raises `UsageError` where one is missing or no plain file."""
        return self._repository.read(self._started.editable)

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

    def are_checked(self, state: State) -> bool:
        """Whether they equal the files of the last check."""
        return state.checked is not None and content_id(self.present()) == state.checked.candidate

    def are_kept(self, state: State) -> bool:
        """Whether they are the incumbent's."""
        return self.present() == self.at(state.incumbent_commit)

    def protected_changes(self) -> list[str]:
        """Tracked files that a run could import, and that differ from the baseline's although no experiment may change
        them."""
        changed = [name for name in self._repository.changed(self._started.baseline) if not name.endswith(PAGES)]
        return [name for name in changed if name not in self._started.editable]

    def how_to_restore(self, changed: list[str]) -> str:
        """The commands that bring protected files back."""
        known = self._repository.files(self._started.baseline, changed)
        back = " ".join([name for name in changed if name in known][:5])
        new = " ".join([name for name in changed if name not in known][:5])
        commands = (
            [f"`git restore --source={self._started.baseline[:12]} --staged --worktree -- {back}`"] if back else []
        )
        commands += [f"`git rm --cached -- {new}`"] if new else []
        return f"{' and '.join(commands)} restores it{' (the first five)' if len(changed) > 5 else ''}"


class Checkout:
    """A working tree, and who works in it."""

    def __init__(self, root: Path) -> None:
        """Raises `UsageError` where `root` is in no usable git repository."""
        self.repository = Repository(root)
        self.base = root.resolve()
        """The folder that paths of tasks are relative to."""
        self.root = self.repository.root
        self.sandbox = self.root / SANDBOX
        self._lock = FileLock(self.repository.git_dir / "tilewright.lock")

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the checkout for one call, or for the run that it waits for. Raises `UsageError` naming the process
        that has it."""
        try:
            acquired = self._lock.acquire(timeout=0)
        except Timeout:
            who = self.held_elsewhere() or "another process"
            raise UsageError(
                f"this checkout is in use by {who}; wait for it or end that process, or work in "
                "another worktree (`git worktree add ../other`)"
            ) from None
        with acquired:
            yield

    def held_elsewhere(self) -> str:
        """Which other process holds the checkout; empty if none does, or that cannot be told."""
        file = Path(self._lock.lock_file)
        return "" if self._lock.is_locked or not file.exists() else holder_of(file.stat())

    def current_folder(self) -> Path | None:
        """The folder of the session that this checkout is on, or None before its first."""
        pointer = self.sandbox / "current"
        if not pointer.is_file():
            return None
        name = pointer.read_text(encoding="utf-8").strip()
        folder = self.sandbox / name
        return folder if name and Path(name).name == name and (folder / "journal.jsonl").is_file() else None

    def session_folder(self, session: str = "") -> Path:
        """The folder of a session, by default the current one. `session` is its name, or a part of it that no other
        session's name has. Raises `UsageError`."""
        if not session:
            folder = self.current_folder()
            if folder is None:
                raise UsageError(
                    "no current session: `tilewright session start FOLDER` begins one, with the folder of a task, and "
                    "`tilewright session list` shows earlier ones"
                )
            return folder
        names = sorted(journal.parent.name for journal in self.sandbox.glob("*/journal.jsonl"))
        fits = [name for name in names if name == session] or [name for name in names if name.startswith(f"{session}-")]
        fits = fits or [name for name in names if session in name]
        if not fits:
            raise UsageError(f"there is no session {session} in sandbox/")
        if fits[1:]:
            raise UsageError(f"{session} is a part of the names of several sessions: {', '.join(fits)}")
        return self.sandbox / fits[0]

    def forget_current(self) -> None:
        """Set the current session aside: its folder stays, but this checkout is on it no longer."""
        (self.sandbox / "current").unlink(missing_ok=True)

    def set_current(self, folder: Path) -> None:
        write_atomically(self.sandbox / "current", folder.name + "\n")

    def journal(self, folder: Path) -> Journal[Entry]:
        """A session's journal as it is now. Raises `JournalAltered`."""
        journal = Journal(folder / "journal.jsonl", ENTRY)
        first = journal.entries[0] if journal.entries else None
        if isinstance(first, Started) and first.session != folder.name:
            raise JournalAltered(f"{journal.path} is the journal of another session, {first.session}")
        return journal

    def peek(self) -> State | None:
        """The current session's state, for whoever only looks. Raises `JournalAltered`."""
        folder = self.current_folder()
        entries = [] if folder is None else self.journal(folder).entries
        return State.of(entries) if entries else None

    def need_anchors(self, session: str, hashes: list[str]) -> None:
        """Raises `JournalAltered` if a commit of the session names a record that its journal lacks."""
        for ref, (commit, message) in self.repository.refs(refs_of(session)).items():
            if (named := anchor(message)) and named not in hashes:
                raise JournalAltered(
                    f"{ref} ({commit[:12]}) names record {named[:12]}, which the journal lacks: it was rewritten, was "
                    "cut off, or is an older copy"
                )

    def write_table(self, folder: Path, state: State) -> None:
        """Render `perf_results.md` and the report: the session's own, and the checkout's. Nothing reads them, so a full
        disk loses nothing: the next row renders them again."""
        text = render_table(state.rows)
        for path in (folder / "perf_results.md", self.sandbox / "perf_results.md"):
            with contextlib.suppress(OSError):
                if not path.is_file() or path.read_text(encoding="utf-8") != text:
                    write_atomically(path, text)
        report.write(self.sandbox, folder.name, self.repository)

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

    def branch_moved(self, state: State) -> str:
        """Where the session's branch stands instead of at the incumbent, and what to do. Empty where it is there, or
        where a killed process left it, from which the next call moves it."""
        tip = self.repository.resolve(f"refs/heads/{state.started.branch}")
        if tip == state.incumbent_commit or (tip is not None and tip == state.moved_from):
            return ""
        branch, wanted = state.started.branch, state.incumbent_commit[:12]
        return (
            f"branch {branch} {f'is at {tip[:12]}' if tip else 'is gone'}, but the session left it at {wanted}; "
            f"`git update-ref refs/heads/{branch} {wanted}` puts it back and leaves the files as they are"
            f"{'' if state.ended else '; or end the session with `tilewright session end`'}"
        )
