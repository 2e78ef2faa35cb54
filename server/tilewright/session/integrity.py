"""Whether what a session left is what it wrote: journal, outside head, refs with their trailers, and table.

Each finding says what differs and what to do. Reading changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from tilewright import ledger
from tilewright.evaluation.snapshot import content_id
from tilewright.heads import Head, HeadStore
from tilewright.ledger import LedgerError, disagreement, render_table
from tilewright.repository import Repository
from tilewright.session import trailers
from tilewright.session.history import ENTRY, Checked, Entry, Noticed, Reverted, Row, Started, State
from tilewright.text import few


@dataclass(frozen=True)
class Chain:
    """A journal's records and their hashes; `missing_head` says where a head should be kept outside, but is not."""

    entries: list[Entry]
    hashes: list[str]
    missing_head: str = ""


def refs_of(session: str) -> str:
    """Where a session's refs lie."""
    return f"refs/tilewright/{session}"


def read_chain(folder: Path) -> Chain:
    """The journal in a session's folder, also while another process writes it.

    Raises `LedgerError` or `HeadError` where it was altered or is not the one whose head is kept outside.
    """
    store = HeadStore(folder.name)
    before = store.read()
    entries, hashes = ledger.read_chain(folder / "journal.jsonl", ENTRY)
    after = store.read()
    check_owner(entries, folder.name, folder / "journal.jsonl")
    where = f"the head kept in {store.path}"
    if before is not None and before.journal and before.journal != str(folder / "journal.jsonl"):
        where += f", which was noted of {before.journal},"
    if before is not None and (text := disagreement(hashes, before, where)):
        raise LedgerError(text)
    if after is not None and after.seq < len(hashes) and (text := outside_problem(entries, hashes, after, where)):
        raise LedgerError(text)
    missing = after is None and len(entries) > 1 and not head_is_failing(entries)
    return Chain(entries, hashes, str(store.path) if missing else "")


def check_owner(entries: list[Entry], session: str, journal: Path) -> None:
    """Raises `LedgerError` where a journal is another session's."""
    if entries and isinstance(entries[0], Started) and entries[0].session != session:
        raise LedgerError(f"{journal} is the journal of another session, {entries[0].session}")


def outside_problem(entries: list[Entry], hashes: list[str], head: Head, where: str) -> str:
    """What a journal and its outside head disagree about. The head is written after each record and before the next, so
    one record may follow it; more only where it is on record that the head could not be kept."""
    if text := disagreement(hashes, head, where):
        return text
    following = entries[head.seq + 1 :]
    if len(following) > 1 and not any(isinstance(entry, Noticed) for entry in following):
        return (
            f"{where} is at record {head.seq + 1}, but {len(following)} records follow, where one can after a kill: "
            f"records {head.seq + 2} to {len(hashes)} were added by another hand, or the head is an older copy"
        )
    return ""


def head_is_failing(entries: list[Entry]) -> bool:
    """Whether it is on record that the head cannot be kept outside at present."""
    notices = [entry for entry in entries if isinstance(entry, Noticed)]
    return bool(notices) and notices[-1].what == "head unwritable"


def missing_head_text(path: str) -> str:
    """What it means that a session has no head outside."""
    return (
        f"no head of this session is kept in {path}: it was deleted, or the checkout came from another machine without "
        "`tilewright session export`; only the trailers of its commits confirm what the journal held before this"
    )


def by_iteration(entries: list[Entry]) -> Iterator[tuple[int, Entry]]:
    """Each record with the iteration that it belongs to."""
    number = 0
    for entry in entries:
        yield number, entry
        number += isinstance(entry, Row)


def trailers_problem(said: trailers.Trailers, session: str, hashes: list[str], where: str) -> str:
    """What a commit's trailers and the journal disagree about; empty for a commit without trailers."""
    if said.seq < 0:
        return ""
    if said.session != session:
        return f"{where} says that it belongs to session {said.session}"
    return disagreement(hashes, Head(session=session, seq=said.seq, hash=said.hash), where)


def refs_changed(repository: Repository, chain: Chain) -> list[str]:
    """Candidates and reverted states that are no longer kept, and refs whose trailers contradict the journal."""
    started = chain.entries[0]
    assert isinstance(started, Started)
    own = refs_of(started.session)
    kept = repository.kept(own)
    found = []
    for ref, (commit, message) in kept.items():
        if text := trailers_problem(trailers.parse(message), started.session, chain.hashes, f"{ref} ({commit[:12]})"):
            found.append(f"{text}; `tilewright session end` sets the session aside")
    candidates = {
        (number, entry.candidate): entry for number, entry in by_iteration(chain.entries) if isinstance(entry, Checked)
    }
    commits = {commit for commit, _ in kept.values()}
    for (number, identity), checked in candidates.items():
        if checked.commit not in commits:
            ref = f"{own}/candidates/{number}-{identity}"
            found.append(_lost(repository, f"candidate {identity} of iteration {number}", ref, checked.commit))
    for number, entry in by_iteration(chain.entries):
        if isinstance(entry, Reverted) and entry.recovery is not None:
            short = entry.recovery.rpartition("-")[2]
            if not kept.get(entry.recovery, ("", ""))[0].startswith(short):
                found.append(_lost(repository, f"what iteration {number} reverted", entry.recovery, short))
    return found


def _lost(repository: Repository, what: str, ref: str, commit: str) -> str:
    if repository.resolve(commit) is None:
        return (
            f"{what} is gone: no ref keeps commit {commit[:12]}, and this repository no longer has it; fetch it from a "
            "copy of the repository, or end the session with `tilewright session end`"
        )
    return f"{what} is no longer kept: {ref} was deleted or moved; `git update-ref {ref} {commit}` brings it back"


def content_problem(repository: Repository, started: Started, commit: str, candidate: str) -> str:
    """How a commit differs from the baseline with the editable files that `candidate` identifies; empty if it is that.

    The commit must exist.
    """
    files = repository.files(commit, started.editable)
    if (found := content_id(files)) != candidate:
        return f"commit {commit[:12]} holds content {found}, not {candidate}"
    others = [name for name in repository.differing(started.baseline, commit) if name not in started.editable]
    return f"commit {commit[:12]} changes {few(others)} too, which is protected" if others else ""


def table_changed(folder: Path, sandbox: Path, state: State) -> str:
    """Which table is not what the journal says, and what to do. One that is one row behind was cut off by a kill; one
    that is missing is rendered anew."""
    rows = state.table()
    if not rows:
        return ""
    tables = [folder / "perf_results.md"]
    pointer = sandbox / "current"
    if pointer.is_file() and pointer.read_text(encoding="utf-8").strip() == folder.name:
        tables.append(sandbox / "perf_results.md")
    wanted = render_table(rows)
    behind = [rows[:-1]] if state.ended is None else []
    known = {render_table(some, earlier) for some in (rows, *behind) for earlier in (False, True)}
    for path in tables:
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else wanted
        if text in known:
            continue
        pairs = zip_longest(text.splitlines(), wanted.splitlines(), fillvalue="nothing")
        line, (found, right) = next(
            ((number, pair) for number, pair in enumerate(pairs, 1) if pair[0] != pair[1]), (1, ("other line ends", ""))
        )
        shown = f"{folder.name}/{path.name}" if path.parent == folder else path.name
        return (
            f"sandbox/{shown} was changed by another hand: line {line} is `{found}` where the journal gives `{right}`; "
            f"`rm sandbox/{shown}`, and the next call renders it from the journal"
        )
    return ""
