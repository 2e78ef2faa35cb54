"""`tilewright demo`: a scripted client drives the server over real stdio; every verdict is the evaluator's."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from mcp import Client, MCPError, StdioServerParameters
from rich.console import Console
from rich.text import Text

from tilewright.bundled import examples
from tilewright.clients import VARIABLES
from tilewright.errors import UsageError
from tilewright.repository import SANDBOX
from tilewright.session.report import FILES

EXAMPLES = 2
"""How many examples are played if none is named."""
DIFF_LINES = 24
"""Lines of an edit's diff that are shown."""


class Aim(StrEnum):
    """What an edit is there to show."""

    GAIN = "a real gain"
    WRONG = "breaks correctness"
    SLOWER = "regresses"
    NOISE = "changes nothing"
    CRASH = "does not compile"
    OPEN = "who knows"


STATUSES = {Aim.WRONG: "revert", Aim.SLOWER: "revert", Aim.NOISE: "revert", Aim.CRASH: "crash"}
"""How an edit has to end."""


@dataclass(frozen=True)
class Edit:
    """One optimization to try: its name in the log, what it shows, and the patterns that it replaces."""

    name: str
    aim: Aim
    changes: Sequence[tuple[str, str]]

    def change(self, text: str) -> str:
        for pattern, replacement in self.changes:
            text = re.sub(pattern, lambda _, new=replacement: new, text)  # type: ignore[misc]
        return text


def edits_of(example: str) -> list[Edit]:
    """The edits in an example's demo.toml."""
    tables = tomllib.loads((examples() / example / "demo.toml").read_text(encoding="utf-8"))["edit"]
    return [
        Edit(
            table["name"],
            Aim(table["shows"]),
            [(change.get("pattern") or re.escape(change["find"]), change["replace"]) for change in table["change"]],
        )
        for table in tables
    ]


async def _play(console: Console, client: Client, repository: Path, example: str, backend: str) -> list[str]:
    """Play a session on an example, an edit at a time. Returns what went otherwise than it should. Raises `UsageError`
    with what a tool refused."""

    def say(text: str, style: str = "") -> None:
        console.print(Text(f"    {text}", style), soft_wrap=True)

    edits, problems, statuses = edits_of(example), [], []
    rules = {"patience": len(edits) + 1, "stop_on_minor_gain": False}
    status = await _call(client, "start_session", task=example, backend=backend, rules=rules)
    say(status["summary"])
    for edit in edits if status["phase"] == "ready" else []:
        diff = _edited(edit, repository / status["editable"][0])
        if not diff:
            continue
        console.print(Text.assemble("\n  ", (edit.name, "bold"), (f" ({edit.aim})", "dim")))
        for line in [*diff[:DIFF_LINES], *(["..."] if len(diff) > DIFF_LINES else [])]:
            say(line, {"+": "green", "-": "red", "@": "cyan"}.get(line[0], "dim"))
        report = await _call(client, "run_iteration", optimization=edit.name)
        if "row" not in report:
            raise UsageError(f"{report['summary']}; {report['next']}")
        say(report["summary"])
        say(report["row"], "cyan")
        ended = report["verdict"]["kind"]
        statuses.append((edit.aim, ended))
        if ended != STATUSES.get(edit.aim, ended):
            problems.append(f"{edit.name!r} {edit.aim} and ended as {ended}")
        if report["advice"]["action"] == "stop":
            break
    else:
        if statuses and (Aim.GAIN, "keep") not in statuses:
            problems.append("no gain was kept")
    status = await _call(client, "session_status")
    say(f"\n{status['summary']}", "bold")
    table = (repository / status["files"]["table"]).read_text(encoding="utf-8")
    console.print(f"\n{table}", markup=False, highlight=False, soft_wrap=True)
    return problems


def _edited(edit: Edit, file: Path) -> list[str]:
    """Make an edit, and return its diff; empty if it does not apply after what was kept."""
    before = file.read_text(encoding="utf-8")
    after = edit.change(before)
    file.write_text(after, encoding="utf-8")
    return list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=1, lineterm=""))[2:]


async def _call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    try:
        result = await client.call_tool(tool, arguments)
    except MCPError as error:
        raise UsageError(f"{tool}: {error}") from None
    if result.is_error:
        raise UsageError(f"{tool}: {getattr(result.content[0], 'text', '')}")
    content = dict(result.structured_content or {})
    return await _call(client, tool, **arguments) if content.get("state") == "running" else content


def _scratch(parent: Path, example: str) -> Path:
    """A fresh git repository that holds one example."""
    repository = parent / example.split("_")[1]
    left_out = shutil.ignore_patterns("__pycache__", "demo.toml")
    shutil.copytree(examples() / example, repository / example, ignore=left_out)
    git = ["git", "-c", "user.name=demo", "-c", "user.email=demo@localhost", "-c", "commit.gpgSign=false"]
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "example"]):
        subprocess.run([*git, "-c", "core.hooksPath=/dev/null", *command], cwd=repository, check=True)
    return repository


@dataclass(frozen=True)
class Played:
    """A demo: its scratch repositories, by example, and what went otherwise than it promises."""

    summary: str
    status: str
    repositories: dict[str, Path]
    problems: list[str]
    next: str


async def run_demo(console: Console, backend: str, folder: Path | None, only: str = "") -> Played:
    """Run the demo. Raises `UsageError` where there is no such example, or no room in the folder."""
    names = sorted(path.parent.name for path in examples().glob("*/demo.toml"))
    chosen = [name for name in names if name.startswith(only)]
    if not chosen:
        raise UsageError(f"no example starts with {only!r}: there are {', '.join(names)}")
    if folder is not None and folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty: give a folder that is, or that does not exist")
    parent = folder or Path(tempfile.mkdtemp(prefix="tilewright-demo-"))
    problems: list[str] = []
    repositories: dict[str, Path] = {}
    for example in chosen if only else chosen[:EXAMPLES]:
        repository = repositories[example] = _scratch(parent, example)
        console.print(f"\n{example} in {repository}", style="bold", markup=False, highlight=False, soft_wrap=True)
        environment = {name: os.environ[name] for name in VARIABLES if name in os.environ}
        serve = ["-m", "tilewright", "serve", "--root", str(repository)]
        async with Client(StdioServerParameters(command=sys.executable, args=serve, env=environment)) as client:
            try:
                problems += await _play(console, client, repository, example, backend)
            except UsageError as error:
                problems.append(f"{example}: {error}")
                break
        end = [sys.executable, "-m", "tilewright", "session", "end", "--reason", "the demo is over"]
        ended = subprocess.run(end, cwd=repository, capture_output=True, text=True, check=False)
        console.print(ended.stdout + ended.stderr, markup=False, highlight=False, soft_wrap=True)
        console.print(f"report: {repository / SANDBOX / FILES[0]}", style="bold", markup=False, soft_wrap=True)
    stays = f"The scratch repositories stay in {parent}: each has its branch perf/<task>-<date> and its journal."
    then = "`tilewright init module:function --shape ...` writes a task for a kernel of yours"
    console.print(f"\n{stays}\nNext: {then}.", markup=False, highlight=False, soft_wrap=True)
    for problem in problems:
        console.print(f"not as promised: {problem}", style="red", markup=False, highlight=False, soft_wrap=True)
    return Played(stays, "failed" if problems else "passed", repositories, problems, then)
