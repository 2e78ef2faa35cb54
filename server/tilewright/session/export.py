"""Carrying a session to another machine: an archive of its folder, with a git bundle of its branch and its refs."""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.errors import UsageError
from tilewright.files import write_atomically
from tilewright.repository import SANDBOX
from tilewright.session.state import State

if TYPE_CHECKING:
    from tilewright.session.checkout import Checkout

BUNDLE = "repository.bundle"
"""What an archive holds beside the session's folder."""
_COMPRESSION = 3
"""Of gzip's nine levels: programs hold up to 2 GiB, most of it weights, of which no level makes less."""


def carried(folder: Path) -> list[str]:
    """A note for a session in a folder that came out of an archive; none where it was begun here."""
    if not (folder / BUNDLE).is_file():
        return []
    return [f"imported: this session was carried here in an archive ({folder.name}/{BUNDLE}), and not begun here"]


def export_session(checkout: Checkout, target: Path, session: str = "") -> str:
    """Write a session, by default the current one, to the archive `target`. Unpacked in the root of a clone, its files
    lie where they lay here, beside the bundle that `git fetch` reads. It is the clone's current session then. Raises
    `UsageError`."""
    folder = checkout.session_folder(session)
    started = State.of(checkout.journal(folder).entries).started
    if target.is_dir():
        raise UsageError(f"{target} is a folder; name the file to write, as in {target / 'session.tgz'}")
    repository, branch = checkout.repository, f"refs/heads/{started.branch}"
    refs = [branch, *repository.refs(f"refs/tilewright/{folder.name}")]
    with tempfile.TemporaryDirectory(prefix="tilewright-") as scratch:
        bundle, packed, current = (Path(scratch) / name for name in (BUNDLE, "session.tgz", "current"))
        current.write_text(f"{folder.name}\n", encoding="utf-8")
        repository.bundle(bundle, refs)
        with tarfile.open(packed, "w:gz", compresslevel=_COMPRESSION) as archive:
            archive.add(current, f"{SANDBOX}/current")
            archive.add(folder, f"{SANDBOX}/{folder.name}")
            archive.add(bundle, f"{SANDBOX}/{folder.name}/{BUNDLE}")
        write_atomically(target, packed.read_bytes())
    return (
        f"{folder.name} with {len(refs)} refs is in {target}; in a clone: `tar -xzf {target.name}`, then `git fetch "
        f"{SANDBOX}/{folder.name}/{BUNDLE} 'refs/*:refs/*'`, `git switch {started.branch}`, `tilewright verify` "
        "and `tilewright rerun 1`"
    )
