"""How replies are printed on the command line."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.commandline import tilewright
from tests.conftest import commit_all
from tilewright.interface.terminal import HERE, in_commands, place_of, print_progress
from tilewright.interface.toolcommands import BROKEN_OFF, LINE, add_tool, report_lines
from tilewright.tools.tool import Effect, Params, Tool
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
    assert list(report_lines(Reply(summary="PASS", interval=[0.5, 2.0], cases=cases))) == [
        "PASS",
        "interval:",
        "  [0.5, 2.0]",
        "cases:",
        '  {"case": "N=4", "hidden": false, "deep": {}}',
        '  {"case": "N=8", "ms": 0}',
    ]


def test_a_long_part_keeps_its_lines_apart() -> None:
    files, text = report_lines(Reply(files={"one": "x" * LINE, "two": "y"}))
    assert files == "files:"
    assert len(text.splitlines()) == 4


def test_progress_is_printed_where_there_is_some(capsys: pytest.CaptureFixture[str]) -> None:
    for line in ("run 1 of 2", "run 1 of 2", "run 2 of 2", "run 1 of 2"):
        asyncio.run(print_progress(line))
    assert capsys.readouterr().err.splitlines() == ["run 1 of 2", "run 2 of 2", "run 1 of 2"]


def test_the_repository_is_that_of_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, outside = tmp_path / "mine", tmp_path / "outside"
    outside.mkdir()
    task = mine / "perf" / "scale"
    task.mkdir(parents=True)
    (task / "README.md").write_text("")
    commit_all(mine)
    for folder, given, place in (
        (outside, str(task), (mine, str(task))),
        (outside, "../mine/perf/scale", (mine, str(task))),
        (outside, "nothing", (HERE, "nothing")),
        (outside, "x" * 300, (HERE, "x" * 300)),
        (mine, str(task), (HERE, str(task))),
        (task, "", (HERE, "")),
    ):
        monkeypatch.chdir(folder)
        assert place_of(HERE, given) == place
    assert place_of(outside, str(task)) == (outside, str(task))
    for command in (["log"], ["try", "an edit"]):
        refused = tilewright(*command, cwd=outside)
        assert (refused.returncode, "run the command in your repository, or give --root" in refused.stderr) == (2, True)
    for command in ("session start", "dump-ir", "check"):
        assert "no task.toml" in tilewright(*command.split(), str(task), cwd=outside).stderr


@pytest.mark.parametrize(
    ("tools", "commands"),
    [
        ("edit a.py, then call run_iteration", 'edit a.py, then run `tilewright try "…"`'),
        ("call run_iteration with go_on=true to go on", 'run `tilewright try "…" --go-on` to go on'),
        ("start_session with resume=true takes it up", "`tilewright session start … --resume` takes it up"),
        ("call revert, then append_result", 'run `tilewright revert`, then `tilewright append-result "…"`'),
        ("call start_session with the path", "run `tilewright session start` with the path"),
        ("verdict revert (`revert` brings it back)", "verdict revert (`revert` brings it back)"),
        ("`tilewright session end` and start_session_2", "`tilewright session end` and start_session_2"),
    ],
)
def test_a_person_is_told_commands_and_not_tools(tools: str, commands: str) -> None:
    assert in_commands(tools) == commands


def test_a_call_that_its_user_breaks_off_says_how_to_go_on(tmp_path: Path) -> None:
    async def work(*_: Any) -> Reply:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(600)
        return Reply()

    app = typer.Typer()
    add_tool(app, "wait", Tool("wait", "Wait", Effect.READS, Params, Reply, work))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background ignores it
    try:
        done = CliRunner().invoke(app, ["--root", str(tmp_path)])
    finally:
        signal.signal(signal.SIGINT, before)
    assert (done.exit_code, " ".join(done.stderr.split())) == (130, BROKEN_OFF)


def test_a_page_is_a_file_for_who_has_no_resources() -> None:
    said = in_commands("skill://perf-loop/references/playbook-tiles.md explains raise-occupancy")
    assert Path(said.partition(" ")[0]).read_text().startswith("# ")
