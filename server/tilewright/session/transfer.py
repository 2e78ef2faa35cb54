"""Carrying a session to another machine: one archive with its branch, its candidates, its journal and its programs."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tilewright import ledger
from tilewright.errors import UsageError
from tilewright.files import write_atomically
from tilewright.heads import Head, HeadError, HeadStore
from tilewright.ledger import LedgerError, difference, disagreement
from tilewright.repository import RepositoryError
from tilewright.session import integrity
from tilewright.session.book import Book
from tilewright.session.checkout import Checkout
from tilewright.session.history import ENTRY, Entry, Phase, State
from tilewright.session.programs import files_of, named, problem, programs_folder, tidy
from tilewright.text import few
from tilewright.wire.record import misfit

FORMAT = 1
_BUNDLE, _JOURNAL, _MANIFEST = "repository.bundle", "journal.jsonl", "manifest.json"
_PROGRAMS = "programs/"
_COMPRESSION = 3
"""Of gzip's nine levels: programs hold up to 2 GiB, most of it weights, of which no level makes less."""


def export_session(checkout: Checkout, target: Path) -> str:
    """Write the current session to the archive `target`. Raises `UsageError` where there is none, or it is in use.

    A head that is missing is put on record here first: every copy of the session has the same records then.
    """
    folder, state = checkout.current_folder(), checkout.peek()
    if folder is None or state is None:
        raise UsageError("there is no session in this checkout to export")
    if found := checkout.findings(state):
        raise UsageError(found[0])
    if text := checkout.branch_moved(state):
        raise UsageError(text)
    if not target.parent.is_dir():
        raise UsageError(f"{target.parent}: no such folder")
    if target.is_dir():
        raise UsageError(f"{target} is a folder; name the file to write, as in {target / 'session.tgz'}")
    if checkout.read(folder).missing_head:
        Book(checkout).keep_missing_head(folder)
    checkout.hold()
    repository = checkout.repository
    refs = [f"refs/heads/{state.started.branch}", *repository.refs(f"refs/tilewright/{state.started.session}")]
    chain = checkout.read(folder)
    programs = named(chain.entries)
    manifest = {
        "format": FORMAT,
        "session": state.started.session,
        "branch": state.started.branch,
        "refs": refs,
        "head": {"seq": len(chain.hashes) - 1, "hash": chain.hashes[-1]},
    }
    with tempfile.TemporaryDirectory(prefix="tilewright-") as scratch:
        bundle, packed = Path(scratch) / _BUNDLE, Path(scratch) / "session.tgz"
        repository.bundle(bundle, refs)
        with tarfile.open(packed, "w:gz", compresslevel=_COMPRESSION) as archive:
            data = json.dumps(manifest, indent=1).encode()
            info = tarfile.TarInfo(_MANIFEST)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
            archive.add(folder / _JOURNAL, _JOURNAL)
            archive.add(bundle, _BUNDLE)
            for path in (programs_folder(checkout.sandbox, folder.name) / name for name in files_of(programs)):
                if path.is_file():
                    archive.add(path, _PROGRAMS + path.name)
        write_atomically(target, packed.read_bytes())
    return f"{state.started.session} with {len(refs)} refs is in {target}"


@dataclass(frozen=True)
class _Archive:
    """An exported session: its name, its refs, the head of its journal, and the files themselves."""

    source: Path
    session: str
    branch: str
    refs: list[str]
    head: Head
    journal: bytes
    bundle: bytes


def import_session(checkout: Checkout, source: Path) -> State:
    """Take a session from an archive, check its journal's chain against all that is known of it, and check its branch
    out. A session that is here already and went on elsewhere is brought up to date.

    Raises `UsageError` where the archive is not one, its journal is not the one that was written, or the checkout has
    all of the session already, or has its branch. Whatever is raised, nothing here has changed then.
    """
    checkout.hold()
    archive = _read(source)
    folder, current, repository = checkout.sandbox / archive.session, checkout.current_folder(), checkout.repository
    if current is not None and current != folder:
        present = checkout.peek()
        if present is not None and present.phase is not Phase.ENDED:
            name = present.started.session
            raise UsageError(f"session {name} is under way here; end it with `tilewright session end` first")
    with tempfile.TemporaryDirectory(prefix="tilewright-") as scratch:
        chain = _chain(archive, Path(scratch))
        state, known = State.of(chain.entries), _state_here(archive, folder, chain, current == folder)
        _check_heads(archive, chain)
        tip = repository.resolve(f"refs/heads/{archive.branch}")
        if known is None and tip is not None:
            raise UsageError(
                f"branch {archive.branch} exists here already; rename it with `git branch -m {archive.branch} "
                f"{archive.branch}-old`"
            )
        if known is not None and tip is not None and (text := checkout.branch_moved(known)):
            raise UsageError(text)
        if dirty := repository.changed(repository.head()):
            raise UsageError(f"files differ from HEAD: {few(dirty)}; commit or stash them first")
        with _undone_on_failure(checkout, archive, folder):
            repository.detach()  # git fetches into no branch that is checked out
            bundle = Path(scratch) / _BUNDLE
            bundle.write_bytes(archive.bundle)
            repository.unbundle(bundle, archive.refs)
            found = [*integrity.refs_changed(repository, chain), checkout.branch_moved(state)]
            if text := next(filter(None, found), ""):
                raise UsageError(f"{source} is not the session that was exported: {text}; export it again")
            repository.checkout(archive.branch)
            repository.exclude_sandbox()
            folder.mkdir(parents=True, exist_ok=True)
            _take_programs(source, programs_folder(checkout.sandbox, folder.name), chain.entries)
            write_atomically(folder / _JOURNAL, archive.journal)
            store = HeadStore(folder.name)
            why = store.write(len(chain.hashes) - 1, chain.hashes[-1], folder / _JOURNAL)
            if why and store.read() is not None:  # an older head stays, which this journal would contradict
                raise UsageError(f"{why}; make room there, and import again")
            checkout.set_current(folder)
    tidy(programs_folder(checkout.sandbox, folder.name), chain.entries)
    checkout.write_table(folder, state)
    checkout.release()
    return state


def _read(source: Path) -> _Archive:
    """What an archive holds. Raises `UsageError`."""
    try:
        with tarfile.open(source, "r:gz") as archive:
            parts = {name: _part(archive, name) for name in (_MANIFEST, _JOURNAL, _BUNDLE)}
        manifest = json.loads(parts[_MANIFEST])
        session, branch, refs = str(manifest["session"]), str(manifest["branch"]), list(manifest["refs"])
        head = Head(session=session, **manifest["head"])
    except (OSError, EOFError, tarfile.TarError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{source} is no exported session: {misfit(error)}") from None
    own = f"refs/tilewright/{session}/"
    if Path(session).name != session or not all(
        ref == f"refs/heads/{branch}" or str(ref).startswith(own) for ref in refs
    ):
        raise UsageError(f"{source} names refs that are not its session's; it was not written by this program")
    return _Archive(source, session, branch, refs, head, parts[_JOURNAL], parts[_BUNDLE])


def _part(archive: tarfile.TarFile, member: str | tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    if file is None:
        raise ValueError(f"{member} is no file")
    return file.read()


def _take_programs(source: Path, folder: Path, entries: list[Entry]) -> None:
    """Write the archive's programs to `folder`. Raises `UsageError` where one is not what the journal says."""
    files = files_of(named(entries))
    with tarfile.open(source, "r:gz") as archive:
        for member in archive:
            if not member.name.startswith(_PROGRAMS):
                continue
            name = member.name.removeprefix(_PROGRAMS)
            if name not in files or not member.isfile() or member.size > files[name][0].size:
                raise UsageError(f"{source} holds {member.name}, which its journal does not name; export it again")
            raw = _part(archive, member)
            if text := problem(raw, *files[name]):
                raise UsageError(f"{source}: {member.name}: {text}; export the session again")
            folder.mkdir(exist_ok=True)
            write_atomically(folder / name, raw)


def _chain(archive: _Archive, scratch: Path) -> integrity.Chain:
    """The archive's records. Raises `UsageError` if they are no chain."""
    journal = scratch / _JOURNAL
    journal.write_bytes(archive.journal)
    try:
        entries, hashes = ledger.read_chain(journal, ENTRY)
        integrity.check_owner(entries, archive.session, journal)
    except LedgerError as error:
        raise UsageError(f"{archive.source}: {error}; export the session again") from None
    return integrity.Chain(entries, hashes)


def _check_heads(archive: _Archive, chain: integrity.Chain) -> None:
    """Raises `UsageError` if the archive's chain lacks a known head of the session, its own or this machine's."""
    store = HeadStore(archive.session)
    try:
        kept = store.read()
    except HeadError as error:
        raise UsageError(f"{archive.source}: {error}; export the session again") from None
    for head, where in ((archive.head, "the archive's manifest"), (kept, f"the head kept in {store.path}")):
        if head is not None and (text := disagreement(chain.hashes, head, where)):
            raise UsageError(f"{archive.source}: {text}; export the session again, where it went on")


def _state_here(archive: _Archive, folder: Path, chain: integrity.Chain, current: bool) -> State | None:
    """Where the session stands in this checkout; None where it is not here. Raises `UsageError` where the archive has
    no more of it, or has not all of it."""
    if not (folder / _JOURNAL).is_file():
        return None
    try:
        entries, hashes = ledger.read_chain(folder / _JOURNAL, ENTRY)
    except LedgerError as error:
        raise UsageError(f"the journal cannot be trusted: {error}; move {folder} away, and import again") from None
    common = min(len(hashes), len(chain.hashes))
    here = f"session {archive.session} is in this checkout already"
    if hashes[:common] != chain.hashes[:common]:
        raise UsageError(f"{here}, and went on here in another way: {difference(chain.hashes, hashes)}")
    if len(hashes) > len(chain.hashes):
        raise UsageError(f"{here}, with {len(hashes) - len(chain.hashes)} records that the archive lacks")
    if len(hashes) == len(chain.hashes) and current:
        raise UsageError(f"{here}, with all records of the archive")
    return State.of(entries) if entries else None


@contextlib.contextmanager
def _undone_on_failure(checkout: Checkout, archive: _Archive, folder: Path) -> Iterator[None]:
    """Puts refs, HEAD and the session's folder back as they were where the work within fails."""
    repository, there = checkout.repository, folder.exists()
    journal = folder / _JOURNAL
    old = journal.read_bytes() if journal.is_file() else None
    before = {ref: repository.resolve(ref) for ref in archive.refs}
    place = repository.branch() or repository.head()
    try:
        yield
    except BaseException:
        if not there:
            shutil.rmtree(folder, ignore_errors=True)
        elif old is not None:
            with contextlib.suppress(OSError):
                write_atomically(journal, old)
        with contextlib.suppress(RepositoryError, OSError):
            repository.detach()
            for ref, commit in before.items():
                now = repository.resolve(ref)
                if commit is not None and commit != now:
                    repository.keep(ref, commit)
                elif commit is None and now is not None:
                    repository.forget(ref, now)
            repository.checkout(place)
        raise
