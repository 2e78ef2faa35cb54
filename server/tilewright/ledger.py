"""What a session leaves on disk: an append-only journal.

A record is one line of JSON with the hash of the line before it. It is on disk (fsync) before the step it reports
is answered, so a process killed at any point loses nothing that was promised.
"""

from __future__ import annotations

import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter

from tilewright.errors import UsageError
from tilewright.files import sync_folder
from tilewright.wire.record import Record, misfit

EntryT = TypeVar("EntryT", bound=Record)


SET_ASIDE = (
    "put it back as it was if you can; else `tilewright session end` sets this session aside, and start_session can "
    "begin another"
)


class JournalAltered(UsageError):
    """A journal is not the one that was written; the text says where, and what to do."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"the journal cannot be trusted: {problem}; {SET_ASIDE}")


GENESIS = "0" * 64


class Journal(Generic[EntryT]):
    """An append-only file of hash-chained records, as it was when it was read. One process writes it at a time."""

    def __init__(self, path: Path, adapter: TypeAdapter[EntryT]) -> None:
        """Read the journal at `path`, if it is there. Raises `JournalAltered`. A last line without its end is what a
        killed writer left: it was never promised, and the next record takes its place."""
        self.path = path
        raw = path.read_bytes() if path.exists() else b""
        self._size, self._end = len(raw), raw.rfind(b"\n") + 1
        self.entries: list[EntryT] = []
        self.hashes: list[str] = []
        self.times: list[str] = []
        """When each record was written, in ISO format."""
        for number, line in enumerate(raw[: self._end].split(b"\n")[:-1]):
            try:
                body = json.loads(line)
                stated = body.pop("hash")
                if body["prev"] != self.head or body["seq"] != number or stated != _hash(body):
                    raise JournalAltered(f"{path}:{number + 1}: the record does not continue the chain: it was altered")
                self.hashes.append(stated)
                self.times.append(body["time"])
                self.entries.append(adapter.validate_python(body["data"]))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise JournalAltered(f"{path}:{number + 1}: no record: {misfit(error)}") from None

    @property
    def head(self) -> str:
        """The hash that the chain stands at."""
        return self.hashes[-1] if self.hashes else GENESIS

    def append(self, entry: EntryT) -> None:
        """Write one record; it is on disk when this returns. Raises `OSError`, with nothing on record, and
        `JournalAltered` where another hand wrote since the journal was read."""
        body: dict[str, Any] = {
            "seq": len(self.entries),
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "prev": self.head,
            "data": entry.model_dump(mode="json"),
        }
        line = json.dumps(body | {"hash": _hash(body)}, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(handle).st_size != self._size:
                raise JournalAltered(f"{self.path}: another hand wrote to it, or cut it, during this call")
            _write(handle, self._end, line)
        except OSError as error:
            error.filename = str(self.path)
            raise
        finally:
            os.close(handle)
        if not self.entries:
            sync_folder(self.path.parent)
        self._end += len(line)
        self._size = self._end
        self.hashes.append(_hash(body))
        self.times.append(body["time"])
        self.entries.append(entry)


def _write(handle: int, end: int, line: bytes) -> None:
    """Put a line at the `end` of a file. A full disk leaves no half record for the next one to stand on."""
    os.ftruncate(handle, end)
    os.lseek(handle, end, os.SEEK_SET)
    try:
        while line:
            line = line[os.write(handle, line) :]
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, end)
        raise


def _hash(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
