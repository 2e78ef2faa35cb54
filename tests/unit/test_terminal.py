"""How replies are printed on the command line."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.records import Record
from tilewright.terminal import LINE, print_report


class Reply(Record):
    summary: str = ""
    interval: list[float] | None = None
    cases: list[dict[str, Any]] | None = None
    files: dict[str, str] | None = None


def test_a_part_of_a_reply_takes_a_line_and_blanks_take_none(capsys: pytest.CaptureFixture[str]) -> None:
    cases = [
        {"case": "N=4", "speedup": None, "hidden": False, "note": "", "deep": {"x": None}},
        {"case": "N=8", "ms": 0},
    ]
    print_report(Reply(summary="PASS", interval=[0.5, 2.0], cases=cases))
    assert capsys.readouterr().out.splitlines() == [
        "PASS",
        "interval:",
        "  [0.5, 2.0]",
        "cases:",
        '  {"case": "N=4", "hidden": false, "deep": {}}',
        '  {"case": "N=8", "ms": 0}',
    ]


def test_a_long_part_keeps_its_lines_apart(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(Reply(files={"one": "x" * LINE, "two": "y"}))
    assert len(capsys.readouterr().out.splitlines()) == 5
