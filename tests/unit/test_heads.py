"""The journal's head outside the repository: where it is, who may read it, and what it says of a chain."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.unit.test_ledger import Note, journal
from tilewright.heads import Head, HeadError, HeadStore, state_folders
from tilewright.ledger import LedgerError, difference, disagreement


def test_a_head_comes_back_and_is_the_users_alone(state_folder: Path, tmp_path: Path) -> None:
    store = HeadStore("scale-1")
    assert store.read() is None
    assert store.write(3, "a" * 64, tmp_path / "journal.jsonl") == ""
    head = HeadStore("scale-1").read()
    assert head is not None
    assert (head.seq, head.hash) == (3, "a" * 64)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (state_folder, state_folder.parent)] == [0o700, 0o700]
    store.path.write_text("junk")
    with pytest.raises(HeadError, match="cannot be read"):
        store.read()


def test_a_head_is_found_where_a_server_without_xdg_put_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TILEWRIGHT_STATE")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    HeadStore("scale-1").write(0, "a", tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert state_folders()[0] == tmp_path / "xdg" / "tilewright" / "heads"
    assert HeadStore("scale-1").read() is not None
    assert HeadStore("scale-1").path.is_relative_to(tmp_path / ".local" / "state")


def test_what_differs_between_two_chains_is_named() -> None:
    assert "record 2 is not the one" in difference(["a", "b"], ["a", "c"])
    assert "records 2 to 2 are gone" in difference(["a", "b"], ["a"])
    assert "records 2 to 3 were added" in difference(["a"], ["a", "b", "c"])
    head = Head(session="s", seq=1, hash="b")
    assert disagreement(["a", "b", "c"], head, "it") == ""
    assert "has 1 records, but it names record 2" in disagreement(["a"], head, "it")
    assert "rewritten" in disagreement(["a", "x"], head, "it")


@pytest.mark.parametrize("change", ["edited", "cut off", "replaced", "removed"])
def test_a_journal_that_is_held_notices_another_hand(tmp_path: Path, change: str) -> None:
    path = tmp_path / "journal.jsonl"
    held = journal(path)
    for text in ("one", "two"):
        held.append(Note(text=text))
    lines = path.read_text().splitlines(keepends=True)
    if change == "edited":
        path.write_text(lines[0] + lines[1].replace("two", "2.0"))
    elif change == "cut off":
        path.write_text(lines[0])
    elif change == "replaced":
        path.rename(tmp_path / "aside")
        path.write_text("".join(lines))
    else:
        path.unlink()
    words = {"edited": "it was altered", "cut off": "are gone", "replaced": "replaced by another", "removed": "is gone"}
    with pytest.raises(LedgerError, match=words[change]):
        held.append(Note(text="three"))
