"""Files of what a check saw: bounded in size and number, and never what a check fails by."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from tilewright.evaluation.mismatches import FILES, LIMIT, save


def test_the_newest_files_stay(tmp_path: Path) -> None:
    folder = tmp_path / "mismatches"
    for number in range(FILES + 2):
        whole = torch.arange(1024.0)
        text = save(folder, str(number), {"got": [whole[number : number + 2]], "before": None})
        assert str(folder / f"{number}.pt") in text
        os.utime(folder / f"{number}.pt", (number, number))
    assert {path.name for path in folder.iterdir()} == {f"{number}.pt" for number in range(2, FILES + 2)}
    last = folder / f"{FILES + 1}.pt"
    assert torch.equal(torch.load(last)["got"][0], torch.arange(1024.0)[FILES + 1 : FILES + 3])
    assert last.stat().st_size < 4096, "of a view, its own elements alone"


def test_files_have_room_for_so_many_bytes(tmp_path: Path) -> None:
    half = torch.zeros(LIMIT // 2, dtype=torch.uint8)
    assert save(tmp_path, "too large", {"x": torch.zeros(LIMIT + 1, dtype=torch.uint8)}) == ""
    for name in ("first", "second"):
        assert save(tmp_path, name, {"x": half})
        os.utime(tmp_path / f"{name}.pt", (1, 1))
    assert [path.name for path in tmp_path.iterdir()] == ["second.pt"]


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "mismatches").symlink_to(tmp_path / "elsewhere")
    assert save(tmp_path / "mismatches", "one", {"x": torch.zeros(1)}) == ""
    assert not [*(tmp_path / "elsewhere").iterdir()]


def test_where_nothing_can_be_written_a_check_goes_on(tmp_path: Path) -> None:
    assert save(tmp_path / "gone" / "mismatches", "one", {"x": torch.zeros(1)}) == ""
