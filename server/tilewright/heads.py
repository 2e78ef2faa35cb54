"""The heads of journals, kept a second time outside the repository: whoever cuts a journal off leaves a trace there.

A journal is written first and its head after it, so a killed server leaves a head that is one record behind, and
never one ahead.
"""

from __future__ import annotations

import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from tilewright.files import home, sync_folder, write_atomically
from tilewright.wire.record import Record, misfit


class HeadError(Exception):
    """A head that is kept outside the repository cannot be read; the text says why."""


class Head(Record):
    """Where a journal stood: the number of its last record, from 0, and that record's hash."""

    session: str
    seq: int
    hash: str
    time: str = ""
    journal: str = ""


def state_folders() -> list[Path]:
    """Where heads may be, the preferred place first. An MCP client may start the server without XDG_STATE_HOME, so the
    default place counts beside the one that is set."""
    if override := os.environ.get("TILEWRIGHT_STATE"):
        return [Path(override) / "heads"]
    default = home() / ".local" / "state"
    places = [Path(os.environ.get("XDG_STATE_HOME") or default), default]
    return list(dict.fromkeys(place / "tilewright" / "heads" for place in places if place.is_absolute()))


def why_unwritable() -> str:
    """Why no head can be kept where heads are kept, found by writing and removing one; empty where one can. Folders
    that are made for it go again."""
    store = HeadStore(f"trial-{os.getpid()}")
    missing = [folder for folder in (store.path.parent, *store.path.parent.parents) if not folder.exists()]
    try:
        return store.write(0, "0" * 64, store.path)
    finally:
        with contextlib.suppress(OSError):
            store.path.unlink(missing_ok=True)
            for folder in missing:
                folder.rmdir()


class HeadStore:
    """The outside head of one session."""

    def __init__(self, session: str) -> None:
        self.session = session
        self._paths = [folder / f"{session}.json" for folder in state_folders()]

    @property
    def path(self) -> Path:
        """Where it is, or would be written."""
        return next((path for path in self._paths if path.is_file()), self._paths[0])

    def read(self) -> Head | None:
        """The head, or None where none can be got at. Raises `HeadError` for a file that is no head of this session."""
        path = self.path
        try:
            head = Head.model_validate_json(path.read_bytes())
        except OSError:
            return None
        except ValidationError as error:
            raise HeadError(f"{path}, where this session's head is kept, cannot be read: {misfit(error)}") from None
        if head.session != self.session or head.seq < 0:
            raise HeadError(f"{path} is not a head of session {self.session}")
        return head

    def write(self, seq: int, digest: str, journal: Path) -> str:
        """Put a head on disk; gives why that was impossible, or nothing."""
        path = self.path
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        head = Head(session=self.session, seq=seq, hash=digest, time=now, journal=str(journal))
        try:
            path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write_atomically(path, head.model_dump_json() + "\n")
            sync_folder(path.parent.parent)
        except OSError as error:
            return f"{path} cannot be written: {error.strerror or error}"
        return ""
