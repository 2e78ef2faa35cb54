"""What a session leaves on disk: an append-only journal, and the table rendered from it.

A record is one line of JSON with the hash of the line before it. It is on disk (fsync) before the step it reports
is answered, so a process killed at any point loses nothing that was promised.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter

from tilewright.files import sync_folder
from tilewright.heads import Head
from tilewright.text import printable
from tilewright.wire.record import Record, misfit

EntryT = TypeVar("EntryT", bound=Record)


class LedgerError(Exception):
    """The journal was changed by something other than this program; the text names the line."""


GENESIS = "0" * 64


class Journal(Generic[EntryT]):
    """An append-only file of hash-chained records. One process writes it at a time; any may read it."""

    def __init__(self, path: Path, adapter: TypeAdapter[EntryT]) -> None:
        """Open or create the journal at `path` and read it. Raises `LedgerError` where a record was altered.

        A last line without its end is what a killed writer left: it was never promised, and is set aside.
        """
        self.path = path
        self._adapter = adapter
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = path.read_bytes() if path.exists() else b""
        whole, _, torn = raw.rpartition(b"\n")
        self.entries, self.hashes = _chained(path, whole.split(b"\n") if whole else [], adapter)
        if torn:
            with (path.parent / "journal.torn").open("ab") as aside:
                aside.write(torn + b"\n")
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        kept = len(raw) - len(torn)
        if torn:
            os.ftruncate(self._file, kept)
        os.lseek(self._file, kept, os.SEEK_SET)
        self._digest = hashlib.sha256(raw[:kept])
        sync_folder(path.parent)

    @property
    def head(self) -> str:
        """The hash that the chain stands at."""
        return self.hashes[-1] if self.hashes else GENESIS

    def check_untouched(self) -> None:
        """Raises `LedgerError` where another hand changed, replaced or removed the file since it was opened."""
        try:
            same = self.path.stat().st_ino == os.fstat(self._file).st_ino
            raw = self.path.read_bytes()
        except OSError:
            raise LedgerError(f"{self.path} is gone, with {len(self.hashes)} records") from None
        if hashlib.sha256(raw).digest() != self._digest.digest():
            found = _chained(self.path, raw.split(b"\n")[:-1], self._adapter)[1]
            raise LedgerError(f"{self.path}: {difference(self.hashes, found)}")
        if not same:
            raise LedgerError(f"{self.path}: the file was replaced by another one")

    def append(self, entry: EntryT) -> None:
        """Write one record; it is on disk when this returns. Raises `LedgerError` where the file was changed."""
        self.check_untouched()
        body: dict[str, Any] = {
            "seq": len(self.entries),
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "prev": self.head,
            "data": entry.model_dump(mode="json"),
        }
        line = json.dumps(body | {"hash": _hash(body)}, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        digest = self._digest.copy()
        digest.update(line)
        end = os.lseek(self._file, 0, os.SEEK_CUR)
        try:
            while line:
                line = line[os.write(self._file, line) :]
            os.fsync(self._file)
        except OSError as error:  # a full disk: leave no half record for the next one to stand on
            os.ftruncate(self._file, end)
            os.lseek(self._file, end, os.SEEK_SET)
            error.filename = str(self.path)
            raise
        self._digest = digest
        self.hashes.append(_hash(body))
        self.entries.append(entry)

    def close(self) -> None:
        os.close(self._file)


def _chained(path: Path, lines: Sequence[bytes], adapter: TypeAdapter[EntryT]) -> tuple[list[EntryT], list[str]]:
    """The records of a journal's whole lines, and their hashes. Raises `LedgerError`."""
    entries: list[EntryT] = []
    hashes: list[str] = []
    for number, line in enumerate(lines):
        try:
            body = json.loads(line)
            stated = body.pop("hash")
            head = hashes[-1] if hashes else GENESIS
            if body["prev"] != head or body["seq"] != number or stated != _hash(body):
                raise LedgerError(f"{path}:{number + 1}: the record does not continue the chain: it was altered")
            hashes.append(stated)
            entries.append(adapter.validate_python(body["data"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LedgerError(f"{path}:{number + 1}: no record: {misfit(error)}") from None
    return entries, hashes


def read_chain(path: Path, adapter: TypeAdapter[EntryT]) -> tuple[list[EntryT], list[str]]:
    """The records of a journal that another process may be writing, and their hashes; a line not yet ended is left out.

    Raises `LedgerError` where a line is no record, or a record was altered.
    """
    return _chained(path, path.read_bytes().split(b"\n")[:-1], adapter)


def read_entries(path: Path, adapter: TypeAdapter[EntryT]) -> list[EntryT]:
    """The records alone."""
    return read_chain(path, adapter)[0]


def difference(wanted: Sequence[str], found: Sequence[str]) -> str:
    """How the chain that was found differs from the one that was written, by the hashes of their records."""
    for number, (one, other) in enumerate(zip(wanted, found, strict=False)):
        if one != other:
            return f"record {number + 1} is not the one that was written: the journal was rewritten from there on"
    if len(found) < len(wanted):
        return f"records {len(found) + 1} to {len(wanted)} are gone: the journal was cut off, or is an older copy"
    return f"records {len(wanted) + 1} to {len(found)} were added by another hand"


def disagreement(hashes: Sequence[str], head: Head, where: str) -> str:
    """What a chain's hashes and a `head` noted elsewhere disagree about; empty where the chain holds the head."""
    if head.seq >= len(hashes):
        return (
            f"the journal has {len(hashes)} records, but {where} names record {head.seq + 1} ({head.hash[:12]}): it "
            "was cut off, or is an older copy"
        )
    if hashes[head.seq] != head.hash:
        return (
            f"record {head.seq + 1} of the journal is {hashes[head.seq][:12]}, but {where} names {head.hash[:12]}: the "
            "journal was rewritten at or before that record"
        )
    return ""


def _hash(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class TableRow(Record):
    """One line of `perf_results.md`. `latency_ms` is None where nothing was measured; `trust`, what a reader
    should know before the row is trusted, is shown in brackets after the optimization."""

    iteration: int
    optimization: str
    latency_ms: float | None
    modelled: bool
    passed: bool
    status: str
    trust: str = ""


COLUMNS = ("iteration", "optimization", "latency_ms", "correctness", "status")
_RIGHT = {"iteration", "latency_ms", "status"}


def shown_latency(value: float | None, modelled: bool) -> str:
    """A latency in ms as tables show it: six decimals, `~` for a model's, `-` where nothing was measured."""
    return "-" if value is None else f"{'~' if modelled else ''}{value:.6f}"


def _literal(text: str) -> str:
    """A text as it is shown in a cell: no borders, tags, entities, links with a text of their own, or images of it."""
    text = re.sub(r"&(?=#?\w)", "&amp;", printable(text))
    text = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text)
    text = re.sub(r"\\+(?=\|)", lambda found: "&#92;" * len(found[0]), text)
    return text.replace("](", "]\\(").replace("|", "\\|")


def _cells(row: TableRow, earlier: bool = False) -> tuple[str, ...]:
    name = row.optimization.replace("|", "\\|") if earlier else _literal(row.optimization)
    return (
        str(row.iteration),
        name + (f" [{row.trust}]" if row.trust else ""),
        shown_latency(row.latency_ms, row.modelled),
        "PASS" if row.passed else "FAIL",
        row.status,
    )


def render_row(row: TableRow) -> str:
    """One row by itself."""
    return "| " + " | ".join(_cells(row)) + " |"


def render_table(rows: list[TableRow], earlier: bool = False) -> str:
    """The Markdown table of `perf_results.md`: five columns, one line for each iteration, nothing else; with `earlier`
    as it was written before names were escaped."""
    cells = [_cells(row, earlier) for row in rows]
    widths = [max(len(text) for text in column) for column in zip(COLUMNS, *cells, strict=True)]
    lines = [_line(COLUMNS, widths, header=True)]
    lines.append(
        "|"
        + "|".join(
            "-" * (width + 1) + ":" if name in _RIGHT else ":" + "-" * (width + 1)
            for name, width in zip(COLUMNS, widths, strict=True)
        )
        + "|"
    )
    return "\n".join([*lines, *(_line(row, widths) for row in cells)]) + "\n"


def _line(cells: tuple[str, ...], widths: list[int], header: bool = False) -> str:
    shown = (
        cell.rjust(width) if name in _RIGHT and not header else cell.ljust(width)
        for name, cell, width in zip(COLUMNS, cells, widths, strict=True)
    )
    return "| " + " | ".join(shown) + " |"
