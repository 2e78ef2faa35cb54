"""`tilewright demo`: a scripted client drives the server over real stdio; every verdict is the evaluator's."""

from __future__ import annotations

import difflib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mcp import Client, MCPError, StdioServerParameters
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from tilewright.bundled import examples
from tilewright.clients import VARIABLES
from tilewright.demo_edits import EDITS, Aim, Edit
from tilewright.session.history import Phase
from tilewright.session.runs import backend_here
from tilewright.task import Backend

EXAMPLES = 2
"""How many examples are played where none is named."""
ROOM_PERCENT = 80.0
"""A baseline above this share of the measured ceiling leaves too little to show a gain."""
TRIES = 2
"""How often a run is made that ends void, since other work was on the GPU."""
DIFF_LINES = 24
"""Lines of an edit's diff that are shown."""
NEXT: dict[str, str] = {
    Phase.READY: "run_correctness",
    Phase.CHECKED: "run_benchmark",
    Phase.FAILED: "revert",
    Phase.MEASURED: "git_checkpoint",
    Phase.RESOLVED: "append_result",
}
"""The tool that comes next in each phase of a session with an edit under way."""


class Refused(Exception):
    """A tool answered with an error, or the server is gone; the text says why."""


def server_in(repository: Path) -> StdioServerParameters:
    """How a client starts the server over a repository, on the GPU and with the state that this process has."""
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "tilewright", "serve", "--root", str(repository)],
        env={name: os.environ[name] for name in VARIABLES if name in os.environ},
    )


class _Play:
    """One example, from scratch repository to finished table. It does what the session's state asks for, so a session
    that ends, by its rules or by a person, ends the play."""

    def __init__(self, console: Console, client: Client, repository: Path, example: str) -> None:
        self._console = console
        self._client = client
        self._repository = repository
        self._example = example
        self.seen: list[tuple[Edit, str]] = []
        """The edits that have a verdict, with what became of each."""
        self.left: list[Edit] = []
        """The edits that were not tried, because the session was over."""
        self.skipped = ""
        """Why no session could begin, if none could."""
        self.problems: list[str] = []
        """What went otherwise than it should."""

    async def run(self, edits: Sequence[Edit], backend: str, choosy: bool) -> None:
        """Baseline, then the edits one at a time. `choosy`: leave the example out if its baseline has little room.

        Raises `Refused` where a tool fails although the session goes on."""
        status = await self._start(backend, patience=len(edits) + 1)
        if status is None:
            return
        self._say(status["summary"])
        share = (status.get("incumbent") or {}).get("roofline_percent") or 0.0
        if status["phase"] == Phase.ENDED and not status["tried"]:
            self.problems.append(status["summary"])
        elif status["phase"] == Phase.ENDED:
            self._say("Nothing was tried on this example: its baseline ended the session, as the rules say.", "yellow")
        elif choosy and share > ROOM_PERCENT:
            self._say(
                f"Nothing was tried on this example: its baseline is at {share:.1f}% of the ceiling, which leaves "
                "little to gain.",
                "yellow",
            )
        else:
            await self._try_all(edits, self._repository / status["editable"][0])

    async def _start(self, backend: str, patience: int) -> dict[str, Any] | None:
        """The status of a session with its baseline, or None if no session can begin."""
        tries, rules = 0, {"patience": patience, "stop_on_minor_gain": False}
        while True:
            try:
                return await self._call("start_session", task=self._example, backend=backend, rules=rules)
            except Refused as error:
                tries += 1
                begun = await self._phase() == Phase.BASELINE
                if begun and tries == TRIES:
                    raise
                self._say(str(error), "yellow")
                if not begun:
                    self.skipped = str(error)
                    return None

    async def _try_all(self, edits: Sequence[Edit], file: Path) -> None:
        self.left = list(edits)
        goes_on = True
        while goes_on and self.left and await self._phase() == Phase.READY:
            goes_on = await self._try(self.left[0], file)
        status = await self._call("session_status")
        self._console.print()
        self._say(status["summary"], "bold")
        if self.left:
            names = ", ".join(edit.name for edit in self.left)
            self._say(f"Not tried, since the session does not go on: {names}.", "yellow")
        table = (self._repository / status["files"]["table"]).read_text(encoding="utf-8")
        self._console.print(f"\n{table}", highlight=False, soft_wrap=True)
        for name, path in status["files"].items():
            self._console.print(f"{name}: {self._repository / path}", highlight=False, soft_wrap=True)

    async def _try(self, edit: Edit, file: Path) -> bool:
        """Do what the session's state asks for until an edit has its row, or the session ended before; whether the
        session goes on. An edit that was dealt with is `left` no more."""
        before = file.read_text(encoding="utf-8")
        after = edit.change(before)
        if after == before:
            self._say(f"{edit.name}: no longer applies after what was kept", "dim")
            self.left.remove(edit)
            return True
        file.write_text(after, encoding="utf-8")
        self._console.print(Text.assemble("\n  ", (edit.name, "bold"), (f" ({edit.aim})", "dim")))
        self._show(file.name, before, after)
        void = 0
        while (phase := await self._phase()) != Phase.ENDED:
            if phase not in NEXT:
                raise Refused(f"session_status: the session is in phase {phase}, in which no edit can be judged")
            tool = "revert" if void == TRIES and phase in (Phase.READY, Phase.CHECKED) else NEXT[phase]
            try:
                report = await self._call(tool, **({"optimization": edit.name} if tool == "append_result" else {}))
            except Refused:
                if await self._phase() == Phase.ENDED:
                    break
                raise
            if tool == "append_result":
                self._say(report["row"], "cyan")
                self.left.remove(edit)
                if void == TRIES:
                    self.problems.append(f"{edit.name!r} has no verdict: its runs were void")
                else:
                    self.seen.append((edit, report["row"].split("|")[5].strip()))
                if report["advice"]["action"] == "escalate":
                    self._say(report["summary"], "yellow")
                return bool(report["advice"]["action"] == "continue")
            if tool == "run_benchmark" or report.get("status", "passed") != "passed":
                self._say(report["summary"])
            void += report.get("status") == "void"
        return False

    async def _phase(self) -> str:
        return str((await self._call("session_status"))["phase"])

    def _show(self, name: str, before: str, after: str) -> None:
        """Print an edit as a unified diff, at most `DIFF_LINES` lines of it."""
        lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=1, lineterm=""))[2:]
        styles = {"+": "green", "-": "red", "@": "cyan"}
        for line in lines[:DIFF_LINES]:
            text = Text(f"    {line} {name}" if line.startswith("@") else f"    {line}", styles.get(line[0], "dim"))
            if self._console.is_terminal:
                text.truncate(self._console.width, overflow="ellipsis")
            self._console.print(text, soft_wrap=True)
        if len(lines) > DIFF_LINES:
            self._say(f"... and {len(lines) - DIFF_LINES} more lines", "dim")

    async def _call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        told = ""

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            nonlocal told
            if message and message != told:
                told = message
                self._say(f"{tool}: {message}", "dim")

        while True:
            try:
                result = await self._client.call_tool(tool, arguments, progress_callback=progress)
            except MCPError as error:
                raise Refused(f"{tool}: {error}") from None
            if result.is_error:
                raise Refused(f"{tool}: {getattr(result.content[0], 'text', result.content[0])}")
            content = result.structured_content
            assert isinstance(content, dict)
            if content.get("state") != "running":
                return content

    def _say(self, text: str, style: str = "") -> None:
        """Print one line, which a terminal shows indented as far as it goes; elsewhere it stays one line."""
        said = Text(text, style)
        if self._console.is_terminal:
            self._console.print(Padding(said, (0, 0, 0, 4)))
        else:
            self._console.print(Text("    ") + said, soft_wrap=True)


def _scratch(parent: Path, example: str) -> Path:
    """A fresh git repository that holds one example."""
    repository = parent / example.split("_")[1]
    shutil.copytree(examples() / example, repository / example, ignore=shutil.ignore_patterns("__pycache__"))
    for command in (
        ["init", "--quiet", "--initial-branch=main"],
        ["add", "--all"],
        ["commit", "--quiet", "--message=example"],
    ):
        settings = ("user.name=demo", "user.email=demo@localhost", "commit.gpgSign=false", "core.hooksPath=/dev/null")
        options = [part for setting in settings for part in ("-c", setting)]
        subprocess.run(["git", *options, *command], cwd=repository, check=True)
    return repository


def _unmet(play: _Play) -> list[str]:
    """What the demo promised to show and did not. An edit that was not tried promises nothing."""
    problems = [
        f"{edit.name!r} {edit.aim} and ended as {status}"
        for edit, status in play.seen
        if (edit.aim in (Aim.WRONG, Aim.SLOWER, Aim.NOISE) and status != "revert")
        or (edit.aim is Aim.CRASH and status != "crash")
    ]
    gains = [status for edit, status in play.seen if edit.aim is Aim.GAIN]
    if gains and "keep" not in gains and not any(edit.aim is Aim.GAIN for edit in play.left):
        problems.append("no gain was kept")
    return [*play.problems, *problems]


async def run_demo(console: Console, shuffle: int | None, backend: str, folder: Path | None, only: str = "") -> int:
    """Run the demo; 0 if nothing went otherwise than it promises, else 1. `shuffle` seeds another order of the edits.

    Without `only`, examples are taken in turn until enough of them were played: one whose baseline is near the ceiling
    of this GPU has no room for its edits, and is left out."""
    if backend not in ("auto", *Backend):
        console.print(f"[red]no backend {escape(backend)!r}: give auto, {' or '.join(Backend)}[/]")
        return 2
    here = backend_here() if backend == "auto" else Backend(backend)
    if here is Backend.CUDA:
        from tilewright.gpu.telemetry import find_gpu

        gpu = find_gpu()
        where = f"the cuda backend: {gpu.name if gpu else 'no GPU found'}, latencies measured"
    else:
        why = " (no GPU here)" if backend_here() is Backend.CPU else ""
        where = f"the cpu backend{why}: kernels interpreted, latencies modelled and marked ~"
    console.print(f"Tilewright demo on {where}", highlight=False, soft_wrap=True)
    chosen = [example for example in EDITS if example.startswith(only)]
    wanted = len(chosen) if only else EXAMPLES
    if not chosen:
        console.print(f"[red]no example starts with {escape(only)!r}: there are {', '.join(EDITS)}[/]")
        return 2
    if folder is not None and folder.exists() and any(folder.iterdir()):
        console.print(f"[red]{escape(str(folder))} is not empty: give a folder that is, or that does not exist[/]")
        return 2
    parent = folder or Path(tempfile.mkdtemp(prefix="tilewright-demo-"))
    plays: list[_Play] = []
    problems: list[str] = []
    for example in chosen:
        if problems or sum(bool(play.seen) for play in plays) == wanted:
            break
        edits = list(EDITS[example])
        if shuffle is not None:
            random.Random(shuffle).shuffle(edits)
        repository = _scratch(parent, example)
        console.print(f"\n[bold]{example}[/] in {escape(str(repository))}", highlight=False, soft_wrap=True)
        async with Client(server_in(repository)) as client:
            play = _Play(console, client, repository, example)
            plays.append(play)
            try:
                await play.run(edits, here, choosy=not only)
            except Refused as error:
                problems.append(f"{example}: {error}")
    problems += [problem for play in plays for problem in _unmet(play)]
    if not any(play.seen for play in plays):
        console.print("\nNo edit was tried.", style="yellow")
    if sum(bool(play.seen) for play in plays) < wanted:
        problems += [play.skipped for play in plays if play.skipped]
    console.print(
        f"\nThe scratch repositories stay in {parent}: each has its branch perf/<task>-<date> and its journal.\n"
        "Next: `tilewright init module:function --shape ...` writes a task for a kernel of yours.",
        highlight=False,
        soft_wrap=True,
    )
    for problem in problems:
        console.print(f"[red]not as promised: {escape(problem)}[/]", highlight=False)
    return 1 if problems else 0
