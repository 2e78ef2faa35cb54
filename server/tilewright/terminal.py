"""What all commands share: where they print, how they fail, and how they reach the loop."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.text import Text

from tilewright.errors import UsageError
from tilewright.task import Backend
from tilewright.text import printable
from tilewright.wire.record import Record

if TYPE_CHECKING:
    from tilewright.session.verification import Line

console = Console(markup=False, highlight=False, soft_wrap=True)
errors = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)

ResultT = TypeVar("ResultT")
Root = Annotated[Path, typer.Option("--root", help="the checkout to work in", file_okay=False, exists=True)]
HERE = Path()
BLANK: tuple[Any, ...] = ("", None, [], {})
"""What a reply's field holds where there is nothing to say."""
LINE = 240
"""Characters of a part of a reply that goes on one line."""
TOOLS = (
    "start_session", "session_status", "run_correctness", "run_benchmark", "git_checkpoint", "revert", "append_result",
    "dump_ir", "autotune", "profile",
)  # fmt: skip
"""The tools that replies name, each of which is a command too."""
SAID = ("summary", "message", "next", "notes")
"""The fields of a reply that are words to its reader."""
_TOOL = re.compile(rf"(?<![\w/.-])(call )?(`?)({'|'.join(TOOLS)})\2(?!\.?[\w/-])")
_ARGUMENT = re.compile(r"\b(with|takes) (include_dirty|root_cause|apply)\b(?:=(\w+))?")


class _Progress:
    """Prints how far the work is, each line once until another comes."""

    def __init__(self) -> None:
        self._last = ""

    async def __call__(self, text: str) -> None:
        if text != self._last:
            errors.print(text, style="dim")
        self._last = text


print_progress = _Progress()


def as_commands(text: str) -> str:
    """A text for agents as one for people at a shell: commands and options in the place of the tools and arguments that
    it names."""

    def named(match: re.Match[str]) -> str:
        call, quote, tool = match.groups()
        if not (call or quote or "_" in tool):  # a word such as revert
            return match[0]
        command = "status" if tool == "session_status" else tool.replace("_", "-")
        what = ' "what you tried"' if tool == "append_result" else ""
        return f"{'run ' if call else ''}`tilewright {command}{what}`"

    def option(match: re.Match[str]) -> str:
        before, name, value = match.groups()
        return f"{before} --{name.replace('_', '-')}{f' {value}' if value else ''}"

    return _ARGUMENT.sub(option, _TOOL.sub(named, text))


def chosen_backend(text: str) -> Backend | None:
    if text not in ("auto", "cuda", "cpu"):
        raise failed("--backend is auto, cuda or cpu")
    return None if text == "auto" else Backend(text)


def failed(text: str) -> typer.Exit:
    errors.print(printable(text), style="red")
    return typer.Exit(2)


def asked(question: str, otherwise: str) -> bool:
    """What a person answers, by default yes. Without a terminal nothing is asked: the command ends, and says what to do
    `otherwise`."""
    if not sys.stdin.isatty():
        raise failed(f"there is no terminal to ask in: {otherwise}")
    return typer.confirm(question, default=True)


def told(work: Callable[[], ResultT]) -> ResultT:
    from tilewright.repository import RepositoryError

    try:
        return work()
    except (UsageError, RepositoryError) as error:
        raise failed(as_commands(str(error))) from None


def in_loop(root: Path, work: Callable[[Any], Coroutine[Any, Any, ResultT]]) -> ResultT:
    from tilewright.session.loop import Loop

    async def run() -> ResultT:
        loop = Loop(root.resolve())
        try:
            return await work(loop)
        finally:
            await loop.close()

    return told(lambda: asyncio.run(run()))


def print_report(report: Record) -> None:
    for name, value in _filled(report.model_dump(mode="json")).items():
        value = _said(value) if name in SAID else value
        if name == "summary":
            console.print(printable(value), style="bold")
        elif isinstance(value, list | dict):
            console.print(f"{name}:")
            parts = value if isinstance(value, list) and isinstance(value[0], dict) else [value]
            for one in parts:
                text = json.dumps(one, ensure_ascii=False)
                console.print(f"  {printable(text)}") if len(text) <= LINE else console.print_json(data=one)
        else:
            console.print(printable(f"{name}: {value}"))


def _said(value: Any) -> Any:
    return [as_commands(one) for one in value] if isinstance(value, list) else as_commands(value)


def _filled(value: Any) -> Any:
    """The same without what says nothing."""
    if isinstance(value, list):
        return [_filled(one) for one in value]
    if isinstance(value, dict):
        return {name: _filled(one) for name, one in value.items() if one not in BLANK}
    return value


def print_lines(lines: list[Line]) -> None:
    """What was checked, a line each; ends the command, with 1 where anything failed."""
    colours = {"ok": "green", "warn": "yellow", "FAIL": "red"}
    for line in lines:
        console.print(Text(f"{line.mark:5}", style=colours[line.mark]), f"{line.what:16}", printable(line.detail))
    raise typer.Exit(1 if any(line.mark == "FAIL" for line in lines) else 0)
