"""Carrying a session to another machine: one archive with its branch, its candidates, its journal and its table."""

from __future__ import annotations

import io
import json
import os
import tarfile
import tempfile
from pathlib import Path

from tilewright.heads import Head, HeadStore
from tilewright.ledger import disagreement
from tilewright.session import integrity
from tilewright.session.checkout import Checkout, Misuse
from tilewright.session.history import Noticed, Phase, State

FORMAT = 1
_BUNDLE, _JOURNAL, _MANIFEST = "repository.bundle", "journal.jsonl", "manifest.json"


def export_session(checkout: Checkout, target: Path) -> str:
    """Write the current session to the archive `target`. Raises `Misuse` where there is none, or it is in use."""
    folder, state = checkout.current_folder(), checkout.peek()
    if folder is None or state is None:
        raise Misuse("there is no session in this checkout to export")
    if found := checkout.findings(state):
        raise Misuse(found[0])
    checkout.hold()
    repository = checkout.repository
    if not target.parent.is_dir():
        raise Misuse(f"{target.parent}: no such folder")
    if target.is_dir():
        raise Misuse(f"{target} is a folder; name the file to write, as in {target / 'session.tgz'}")
    if not os.access(target.parent, os.W_OK):
        raise Misuse(f"{target.parent} cannot be written to")
    refs = [f"refs/heads/{state.started.branch}", *repository.refs(f"refs/tilewright/{state.started.session}")]
    chain = checkout.read(folder)
    manifest = {
        "format": FORMAT,
        "session": state.started.session,
        "branch": state.started.branch,
        "refs": refs,
        "head": {"seq": len(chain.hashes) - 1, "hash": chain.hashes[-1]},
        "head_missing": bool(chain.missing_head),
    }
    with tempfile.TemporaryDirectory(prefix="tilewright-") as scratch:
        bundle = Path(scratch) / _BUNDLE
        repository.bundle(bundle, refs)
        with tarfile.open(target, "w:gz") as archive:
            data = json.dumps(manifest, indent=1).encode()
            info = tarfile.TarInfo(_MANIFEST)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
            archive.add(folder / _JOURNAL, _JOURNAL)
            archive.add(bundle, _BUNDLE)
    return f"{state.started.session} with {len(refs)} refs is in {target}"


def import_session(checkout: Checkout, source: Path) -> State:
    """Take a session from an archive, check its journal's chain against all that is known of it, and check its branch
    out.

    Raises `Misuse` where the archive is not one, its journal is not the one that was written, or the checkout already
    has the session or its branch.
    """
    checkout.hold()
    present = checkout.peek()
    if present is not None and present.phase is not Phase.ENDED:
        raise Misuse(f"session {present.started.session} is under way here; end it with `tilewright session end` first")
    repository = checkout.repository
    try:
        with tarfile.open(source, "r:gz") as archive:
            parts = {name: _part(archive, name) for name in (_MANIFEST, _JOURNAL, _BUNDLE)}
        manifest = json.loads(parts[_MANIFEST])
        session, branch, refs = manifest["session"], manifest["branch"], manifest["refs"]
        head = Head(session=session, **manifest["head"]) if "head" in manifest else None
    except (OSError, tarfile.TarError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Misuse(f"{source} is no exported session: {error}") from None
    folder = checkout.sandbox / str(session)
    own = f"refs/tilewright/{session}/"
    if Path(str(session)).name != session or not all(
        ref == f"refs/heads/{branch}" or ref.startswith(own) for ref in refs
    ):
        raise Misuse(f"{source} names refs that are not its session's; it was not written by this program")
    if folder.exists():
        raise Misuse(f"session {session} is in this checkout already")
    if repository.resolve(f"refs/heads/{branch}") is not None:
        raise Misuse(f"branch {branch} exists here already; rename it with `git branch -m {branch} {branch}-old`")
    if dirty := repository.changed(repository.head()):
        raise Misuse(f"files differ from HEAD: {', '.join(dirty[:5])}; commit or stash them first")
    with tempfile.TemporaryDirectory(prefix="tilewright-") as scratch:
        unpacked = Path(scratch) / session
        unpacked.mkdir()
        (unpacked / _JOURNAL).write_bytes(parts[_JOURNAL])
        chain = checkout.read(unpacked)
        if head is not None and (text := disagreement(chain.hashes, head, "the archive's manifest")):
            raise Misuse(f"{source}: {text}; export the session again")
        state = State.of(chain.entries)
        bundle = Path(scratch) / _BUNDLE
        bundle.write_bytes(parts[_BUNDLE])
        repository.unbundle(bundle, refs)
    found = [*integrity.refs_changed(repository, chain), checkout.branch_moved(state)]
    if text := next(filter(None, found), ""):
        for ref in refs:
            repository.forget(ref, repository.resolve(ref) or "")
        raise Misuse(f"{source} is not the session that was exported: {text}; export it again")
    repository.checkout(branch)
    repository.exclude_sandbox()
    folder.mkdir(parents=True)
    (folder / _JOURNAL).write_bytes(parts[_JOURNAL])
    HeadStore(folder.name).write(len(chain.hashes) - 1, chain.hashes[-1], folder / _JOURNAL)
    if manifest.get("head_missing"):
        detail = integrity.missing_head_text("the state folder of the machine that it was exported on")
        journal = checkout.open_journal(folder)
        journal.append(Noticed(what="head missing", detail=detail))
        journal.close()
        HeadStore(folder.name).write(len(journal.hashes) - 1, journal.head, journal.path)
    checkout.write_table(folder, state)
    checkout.set_current(folder)
    checkout.release()
    return state


def _part(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is no file")
    return file.read()
