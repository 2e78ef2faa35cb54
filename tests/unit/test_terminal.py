"""How replies are printed on the command line."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import typer

from tilewright.commands import app
from tilewright.mcp_server import Desk, build_server
from tilewright.terminal import LINE, TOOLS, as_commands, print_progress, print_report
from tilewright.wire.record import Record


class Reply(Record):
    summary: str = ""
    next: str = ""
    row: str = ""
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "call git_checkpoint, then append_result",
            'run `tilewright git-checkpoint`, then `tilewright append-result "what you tried"`',
        ),
        ("Change something, or revert. Or call revert.", "Change something, or revert. Or run `tilewright revert`."),
        ("call autotune again with apply to write", "run `tilewright autotune` again with --apply to write"),
        ("(`revert` takes root_cause=latency)", "(`tilewright revert` takes --root-cause latency)"),
        ("`session_status` says it", "`tilewright status` says it"),
        ("see perf/run_benchmark.py, run_benchmark/x and dump_ir_2", None),
    ],
)
def test_a_reply_names_commands_where_it_names_tools(
    text: str, expected: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert as_commands(text) == (expected or text)
    print_report(Reply(next=text, row=text))
    assert capsys.readouterr().out.splitlines() == [f"next: {expected or text}", f"row: {text}"]


def test_each_tool_is_a_command() -> None:
    tools = asyncio.run(build_server(Desk(Path())).list_tools())
    assert sorted(TOOLS) == sorted(tool.name for tool in tools)
    there = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for tool in TOOLS:
        assert as_commands(f"call {tool}").split()[2].strip("`") in there


def test_progress_is_printed_where_there_is_some(capsys: pytest.CaptureFixture[str]) -> None:
    for line in ("run 1 of 2", "run 1 of 2", "run 2 of 2", "run 1 of 2"):
        asyncio.run(print_progress(line))
    assert capsys.readouterr().err.splitlines() == ["run 1 of 2", "run 2 of 2", "run 1 of 2"]
