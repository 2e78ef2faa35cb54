"""How replies are printed on the command line."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tilewright.interface.terminal import print_progress
from tilewright.tools.lines import LINE, fields
from tilewright.wire.record import Record


class Reply(Record):
    summary: str = ""
    next: str = ""
    row: str = ""
    interval: list[float] | None = None
    cases: list[dict[str, Any]] | None = None
    files: dict[str, str] | None = None


def test_a_part_of_a_reply_takes_a_line_and_blanks_take_none() -> None:
    cases = [
        {"case": "N=4", "speedup": None, "hidden": False, "note": "", "deep": {"x": None}},
        {"case": "N=8", "ms": 0},
    ]
    assert list(fields(Reply(summary="PASS", interval=[0.5, 2.0], cases=cases))) == [
        "PASS",
        "interval:",
        "  [0.5, 2.0]",
        "cases:",
        '  {"case": "N=4", "hidden": false, "deep": {}}',
        '  {"case": "N=8", "ms": 0}',
    ]


def test_a_long_part_keeps_its_lines_apart() -> None:
    files, text = fields(Reply(files={"one": "x" * LINE, "two": "y"}))
    assert files == "files:"
    assert len(text.splitlines()) == 4


def test_progress_is_printed_where_there_is_some(capsys: pytest.CaptureFixture[str]) -> None:
    for line in ("run 1 of 2", "run 1 of 2", "run 2 of 2", "run 1 of 2"):
        asyncio.run(print_progress(line))
    assert capsys.readouterr().err.splitlines() == ["run 1 of 2", "run 2 of 2", "run 1 of 2"]
