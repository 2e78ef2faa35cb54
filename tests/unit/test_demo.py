"""The demo's script against sessions that end after any step, refuse, or have no room. A fake plays the server."""

from __future__ import annotations

import asyncio
import io
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mcp import MCPError, StdioServerParameters
from rich.console import Console

from tilewright import demo
from tilewright.demo_edits import EDITS, Aim
from tilewright.evaluation.results import Status
from tilewright.policy import Advice, Reason, Verdict, VerdictKind
from tilewright.session.history import Phase
from tilewright.session.reports import (
    AppendReport,
    BenchmarkReport,
    CheckpointReport,
    CorrectnessReport,
    IncumbentReport,
    RevertReport,
    RowReport,
    StatusReport,
)
from tilewright.wire.record import Record

FIRST, SECOND, THIRD = list(EDITS)[:3]
STEPS = {"run_correctness", "run_benchmark", "git_checkpoint", "revert", "append_result"}
CEILING = "98.5% of the measured ceiling: the rest is not worth an iteration"


class Refusal(Exception):
    """A tool's error."""


@dataclass
class Script:
    """How the session on one example goes."""

    ends_after: int | None = None
    """It ends once so many steps are done; 0: with the baseline."""
    share: float = 40.0
    refused: str = ""
    fails: str = ""
    void: set[str] = field(default_factory=set)
    """The edits whose benchmark is void, again and again; `once` among them: only the first time."""
    kept: set[Aim] = field(default_factory=lambda: {Aim.GAIN, Aim.OPEN})
    escalates: bool = False
    dies_after: int | None = None
    """The server is gone after so many steps."""


class Server:
    """The tools of one repository as a client reaches them, with sessions that go as a script says. Every answer is one
    of the server's own reports, and a call that does not come now is refused."""

    scripts: dict[str, Script]
    calls: list[tuple[str, str]]

    def __init__(self, parameters: StdioServerParameters) -> None:
        self._repository = Path(parameters.args[-1])
        self._phase = Phase.BASELINE
        self._begun = False
        self._rows: list[RowReport] = []
        self._steps = 0
        self._voids = 0

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def call_tool(self, tool: str, arguments: dict[str, Any], progress_callback: Any = None) -> Any:
        if tool == "start_session":
            self._example = arguments["task"]
            self._script = self.scripts.get(self._example, Script())
            self._file = self._repository / self._example / "fixed_launch.py"
            self._incumbent = self._file.read_text()
        if self._begun and self._steps == self._script.dies_after:
            raise MCPError(-32000, "Connection closed")
        self.calls.append((self._example, tool))
        try:
            report = self._answer(tool, arguments)
        except Refusal as refusal:
            return SimpleNamespace(is_error=True, content=[SimpleNamespace(text=str(refusal))], structured_content=None)
        return SimpleNamespace(is_error=False, content=[], structured_content=report.model_dump(mode="json"))

    def _answer(self, tool: str, arguments: dict[str, Any]) -> Record:
        if tool == "session_status":
            return self._status()
        if tool == "start_session":
            if self._script.refused:
                raise Refusal(self._script.refused)
            self._begun = True
            if self._script.fails == "void":
                raise Refusal("the baseline could not be measured: other work on the GPU; call start_session again")
            self._phase = Phase.ENDED if self._script.fails or self._script.ends_after == 0 else Phase.READY
            if not self._script.fails:
                self._row("baseline", Verdict(kind=VerdictKind.KEEP, reason=Reason.BASELINE))
            return self._status()
        if self._phase is Phase.ENDED:
            raise Refusal(f"the session has ended ({CEILING}); call start_session to begin another")
        report = self._step(tool, arguments)
        self._steps += 1
        if self._steps == self._script.ends_after:
            self._phase = Phase.ENDED
        return report

    def _step(self, tool: str, arguments: dict[str, Any]) -> Record:
        text = self._file.read_text()
        edit = next((edit for edit in EDITS[self._example] if edit.change(self._incumbent) == text), None)
        then = {"next": "as session_status says"}
        match self._phase, tool:
            case Phase.READY, "run_correctness":
                assert edit is not None, "nothing was edited"
                self._edit = edit
                wrong = edit.aim in (Aim.WRONG, Aim.CRASH)
                self._phase = Phase.FAILED if wrong else Phase.CHECKED
                status = {Aim.WRONG: Status.WRONG_VALUES, Aim.CRASH: Status.COMPILE_ERROR}.get(edit.aim, Status.PASSED)
                return CorrectnessReport(summary=f"{status}: {edit.name}", status=status, **then)
            case Phase.CHECKED, "run_benchmark":
                if self._edit.name in self._script.void and not (self._voids and "once" in self._script.void):
                    self._voids += 1
                    return BenchmarkReport(summary="VOID: other work on the GPU", status=Status.VOID, **then)
                kept = self._edit.aim in self._script.kept
                self._phase = Phase.MEASURED if kept else Phase.FAILED
                kind, reason = (VerdictKind.KEEP, Reason.GAIN) if kept else (VerdictKind.REVERT, Reason.INCONCLUSIVE)
                verdict = Verdict(kind=kind, reason=reason)
                return BenchmarkReport(summary=f"{kind}", status=Status.PASSED, verdict=verdict, **then)
            case Phase.MEASURED, "git_checkpoint":
                self._phase, self._incumbent, self._kind = Phase.RESOLVED, text, VerdictKind.KEEP
                return CheckpointReport(summary="committed", commit="c", branch="b", **then)
            case ((Phase.READY | Phase.CHECKED | Phase.FAILED | Phase.MEASURED), "revert"):
                self._file.write_text(self._incumbent)
                crashed = self._phase is Phase.FAILED and self._edit.aim is Aim.CRASH
                self._kind = VerdictKind.CRASH if crashed else VerdictKind.REVERT
                self._phase = Phase.RESOLVED
                return RevertReport(summary="back", to="c", **then)
            case Phase.RESOLVED, "append_result":
                verdict = Verdict(kind=self._kind, reason=Reason.GAIN)
                row = self._row(arguments["optimization"], verdict)
                self._phase = Phase.READY
                action = "escalate" if self._script.escalates else "continue"
                advice = Advice(action=action, reason="the root cause is unknown")
                return AppendReport(summary=f"{action}: {advice.reason}", row=row, advice=advice, **then)
        raise Refusal(f"{tool} does not come now")

    def _row(self, name: str, verdict: Verdict) -> str:
        number = len(self._rows)
        self._rows.append(
            RowReport(
                iteration=number, optimization=name, latency="1", correctness="PASS", status=verdict.kind, reason=""
            )
        )
        table = self._repository / "sandbox" / "perf_results.md"
        table.parent.mkdir(exist_ok=True)
        row = f"| {number} | {name} | 1.000000 | PASS | {verdict.kind} |"
        table.write_text((table.read_text() if table.exists() else "") + row + "\n")
        return row

    def _status(self) -> StatusReport:
        if not self._begun:
            return StatusReport(summary="no session yet in this checkout", phase="none")
        ended = f"ended: {self._script.fails or CEILING}. " if self._phase is Phase.ENDED else ""
        return StatusReport(
            summary=f"{ended}{self._example} on cuda",
            phase=self._phase,
            editable=[f"{self._example}/fixed_launch.py"],
            incumbent=IncumbentReport(
                commit="c", latency="1", speedup_over_baseline=1, roofline_percent=self._script.share
            ),
            tried=list(self._rows),
            files={"table": "sandbox/perf_results.md"},
        )


Play = Callable[..., tuple[int, str]]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Run the demo where sessions go as scripts say, by example; gives its exit code and all that it printed."""
    monkeypatch.setattr(demo, "Client", Server)

    def run(
        scripts: dict[str, Script] | None = None, only: str = "", width: int = 500, terminal: bool = False
    ) -> tuple[int, str]:
        monkeypatch.setattr(Server, "scripts", scripts or {}, raising=False)
        monkeypatch.setattr(Server, "calls", [], raising=False)
        written = io.StringIO()
        console = Console(
            file=written, width=width, force_terminal=terminal, color_system="standard" if terminal else None
        )
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        return asyncio.run(demo.run_demo(console, None, "cpu", folder, only)), written.getvalue()

    return run


def names(example: str) -> list[str]:
    return [edit.name for edit in EDITS[example]]


def steps_of(example: str) -> int:
    """The steps of a session that goes to its end: three for what fails its check, else four."""
    return sum(3 if edit.aim in (Aim.WRONG, Aim.CRASH) else 4 for edit in EDITS[example])


def test_two_examples_are_played_to_their_end(play: Callable[..., tuple[int, str]]) -> None:
    code, shown = play()
    assert code == 0, shown
    assert [example for example, tool in Server.calls if tool == "start_session"] == [FIRST, SECOND]
    assert sum(tool in STEPS for _, tool in Server.calls) == steps_of(FIRST) + steps_of(SECOND)
    assert all(name in shown for name in names(FIRST) + names(SECOND))
    assert "Not tried" not in shown


STEPS_OF_ALL = [(example, step) for example in EDITS for step in range(steps_of(example) + 1)]


@pytest.mark.parametrize(("example", "step"), STEPS_OF_ALL)
def test_a_session_that_ends_after_any_step_is_a_normal_end(example: str, step: int, play: Play) -> None:
    code, shown = play({example: Script(ends_after=step)}, only=example)
    assert code == 0, shown
    assert CEILING in shown
    rows = [tool for _, tool in Server.calls].count("append_result")
    left = names(example)[rows:]
    if step == 0:
        assert "Nothing was tried on this example: its baseline ended the session" in shown
    else:
        said = f"Not tried, since the session does not go on: {', '.join(left)}."
        assert said in shown if left else "Not tried" not in shown
        assert f"| {rows} | " in shown  # the table, with the baseline


@pytest.mark.parametrize("ends_after", [0, 7])
def test_the_next_example_is_played_where_one_ends_early(ends_after: int, play: Play) -> None:
    code, shown = play({FIRST: Script(ends_after=ends_after)})
    assert code == 0, shown
    begun = [example for example, tool in Server.calls if tool == "start_session"]
    assert begun == ([FIRST, SECOND, THIRD] if ends_after == 0 else [FIRST, SECOND])


def test_examples_without_room_are_left_out_by_what_was_measured(play: Play) -> None:
    code, shown = play({FIRST: Script(share=93.0), THIRD: Script(ends_after=0)})
    assert code == 0, shown
    assert "its baseline is at 93.0% of the ceiling" in shown
    stepped = {example for example, tool in Server.calls if tool in STEPS}
    assert stepped == {SECOND, list(EDITS)[3]}
    code, shown = play({FIRST: Script(share=93.0)}, only="01")
    assert code == 0, shown
    assert all(name in shown for name in names(FIRST))


def test_a_gpu_where_nothing_has_room_is_no_failure(play: Play) -> None:
    code, shown = play({example: Script(ends_after=0) for example in EDITS})
    assert code == 0, shown
    assert "No edit was tried." in shown


def test_what_cannot_be_played_here_is_left_out_and_fails_only_where_too_little_is_left(play: Play) -> None:
    refused = Script(refused="frontend = 'triton' needs the package triton, which is not there")
    code, shown = play({FIRST: refused})
    assert code == 0, shown
    assert refused.refused in shown
    code, shown = play({FIRST: refused}, only="01")
    assert code == 1
    assert f"not as promised: start_session: {refused.refused}" in shown


def test_a_baseline_that_fails_is_a_fault_of_the_example(play: Play) -> None:
    code, shown = play({FIRST: Script(fails="the baseline itself failed (wrong_values)")})
    assert code == 1
    assert "not as promised: ended: the baseline itself failed (wrong_values)" in shown


def test_a_gpu_that_stays_busy_is_said_once_it_was_tried_again(play: Play) -> None:
    code, shown = play({FIRST: Script(fails="void")})
    assert code == 1
    assert [call for call in Server.calls if call[1] == "start_session"] == [(FIRST, "start_session")] * 2
    assert f"not as promised: {FIRST}: start_session: the baseline could not be measured: other work" in shown


def test_a_void_run_is_made_again_and_gives_no_verdict_where_it_stays_void(play: Play) -> None:
    name = next(edit.name for edit in EDITS[FIRST] if edit.aim is Aim.NOISE)
    code, shown = play({FIRST: Script(void={name, "once"})}, only="01")
    assert code == 0, shown
    code, shown = play({FIRST: Script(void={name})}, only="01")
    assert code == 1
    assert f"not as promised: {name!r} has no verdict: its runs were void" in " ".join(shown.split())
    assert all(name in shown for name in names(FIRST))


def test_an_escalation_ends_the_play(play: Play) -> None:
    code, shown = play({FIRST: Script(escalates=True)}, only="01")
    assert code == 0, shown
    assert "escalate: the root cause is unknown" in shown
    assert f"does not go on: {', '.join(names(FIRST)[1:])}." in shown


def test_a_verdict_against_what_an_edit_is_for_fails_the_demo(play: Play) -> None:
    code, shown = play({FIRST: Script(kept={Aim.NOISE, Aim.GAIN})}, only="01")
    assert code == 1
    assert "changes nothing and ended as keep" in shown
    code, shown = play({FIRST: Script(kept=set())}, only="01")
    assert code == 1
    assert "no gain was kept" in shown


def test_a_server_that_dies_is_one_sentence(play: Play) -> None:
    code, shown = play({FIRST: Script(dies_after=5)})
    assert code == 1
    assert f"not as promised: {FIRST}: " in shown
    assert "Connection closed" in shown


@pytest.mark.parametrize("width", [60, 100])
def test_an_edit_is_shown_as_a_short_diff_that_fits(width: int, play: Play) -> None:
    code, shown = play(only="03", width=width)
    assert code == 0
    lines = shown.splitlines()
    assert any(line.startswith("    -    ct.store(x_out") for line in lines)
    assert any(line.startswith("    +TILE_S = 16") for line in lines)
    shares = lines.index(next(line for line in lines if "four heads a block share" in line))
    shown_lines = [line for line in lines[shares:] if line[:5] in ("    -", "    +", "    @")]
    assert 10 < len(shown_lines) <= demo.DIFF_LINES
    code, shown = play(only="03", width=width, terminal=True)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    kernel = [line for line in plain.splitlines() if line[:5] in ("    -", "    +", "    @")]
    assert kernel
    assert all(len(line) <= width for line in kernel)
    assert "\x1b[31m" in shown
    assert "\x1b[32m" in shown
