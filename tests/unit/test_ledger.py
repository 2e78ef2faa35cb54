"""The journal loses nothing and hides no change."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tilewright.ledger import Journal, JournalAltered
from tilewright.wire.record import Record


class Note(Record):
    kind: Literal["note"] = "note"
    text: str


ADAPTER = TypeAdapter(Note)


def journal(path: Path) -> Journal[Note]:
    return Journal(path, ADAPTER)


def test_records_come_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = journal(path)
    for text in ("one", "two", "zwölf | 12"):
        first.append(Note(text=text))
    again = journal(path)
    assert [note.text for note in again.entries] == ["one", "two", "zwölf | 12"]
    assert (again.head, again.times) == (first.head, first.times)
    assert again.times == sorted(again.times)
    again.append(Note(text="three"))
    assert [note.text for note in journal(path).entries][-1] == "three"


@pytest.mark.parametrize("change", ["edit", "drop", "swap", "insert"])
def test_an_altered_record_is_found_and_named(tmp_path: Path, change: str) -> None:
    path = tmp_path / "journal.jsonl"
    first = journal(path)
    for text in ("one", "two", "three"):
        first.append(Note(text=text))
    lines = path.read_text().splitlines()
    altered = {
        "edit": [lines[0], lines[1].replace("two", "2.0"), lines[2]],
        "drop": [lines[0], lines[2]],
        "swap": [lines[1], lines[0], lines[2]],
        "insert": [lines[0], lines[0], *lines[1:]],
    }[change]
    path.write_text("\n".join(altered) + "\n")
    with pytest.raises(JournalAltered, match=r"journal\.jsonl:[12]"):
        journal(path)


@given(st.integers(1, 60))
def test_a_torn_last_line_was_never_promised_and_the_rest_stands(cut: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        first = journal(path)
        first.append(Note(text="kept"))
        first.append(Note(text="torn by a kill"))
        whole = path.read_bytes()
        path.write_bytes(whole[:-cut])
        again = journal(path)
        assert [note.text for note in again.entries] == ["kept"]
        again.append(Note(text="next"))
        assert [note.text for note in journal(path).entries] == ["kept", "next"]


def test_what_another_hand_wrote_in_the_middle_of_a_call_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first, second = journal(path), journal(path)
    first.append(Note(text="one"))
    with pytest.raises(JournalAltered, match="another hand wrote to it"):
        second.append(Note(text="two"))
    assert [note.text for note in journal(path).entries] == ["one"]


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    program = (
        "import sys\nfrom pathlib import Path\nfrom tests.unit.test_ledger import journal, Note\n"
        f"found = journal(Path({str(path)!r}))\n"
        "for number in range(10**6):\n    found.append(Note(text=str(number)))\n    print(number, flush=True)\n"
    )
    for delay in (0.4, 0.5, 0.7):
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        time.sleep(delay)
        os.kill(process.pid, signal.SIGKILL)
        assert process.stdout is not None
        acknowledged = process.stdout.read().split("\n")[:-1]
        process.wait()
        found = journal(path)
        texts = [note.text for note in found.entries]
        assert texts[: len(acknowledged)] == acknowledged
        assert len(texts) - len(acknowledged) <= 1
        path.unlink(missing_ok=True)
