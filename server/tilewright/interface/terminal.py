"""What all commands share: where they print, how they fail, and how they ask."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from pydantic_core import to_json
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from tilewright.bundled import references
from tilewright.errors import UsageError
from tilewright.files import repository_of
from tilewright.skillpack import HOST, uri
from tilewright.text import Line, Mark, printable
from tilewright.tools import table

if TYPE_CHECKING:
    from tilewright.tools.tool import Tool

console = Console(markup=False, highlight=False, soft_wrap=True)
errors = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)

ResultT = TypeVar("ResultT")
Root = Annotated[Path, typer.Option("--root", help="the checkout to work in", file_okay=False, exists=True)]
HERE = Path()


class _Form:
    """The form of answers, refusals among them."""

    as_json = False

    @classmethod
    def take(cls, as_json: bool) -> bool:
        cls.as_json = as_json
        return as_json


Json = Annotated[bool, typer.Option("--json", help="print JSON", callback=_Form.take)]


class Listing(TyperGroup):
    """Commands, each with all that it says of itself in one paragraph."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        helps = [(name, getattr(self.get_command(ctx, name), "help", "")) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, " ".join(text.partition("\n\n")[0].split())) for name, text in helps])


class _Progress:
    """Prints how far the work is, each line once until another comes."""

    def __init__(self) -> None:
        self._last = ""

    async def __call__(self, text: str) -> None:
        if text != self._last:
            errors.print(text, style="dim")
        self._last = text


print_progress = _Progress()


def command_of(tool: Tool[Any, Any]) -> str:
    return tool.command or tool.name.replace("_", "-")


def in_commands(text: str) -> str:
    """What a tool says, with commands in place of tools' names, and files in place of resources. A name without `_` is
    a tool's only after `call`."""
    tools = table()
    names = [name if "_" in name else f"(?<=call ){name}" for name in tools]
    flags = "resume|go_on|include_dirty"

    def command(words: re.Match[str]) -> str:
        tool, flag = tools[words["tool"]], words["flag"] or ""
        first = next(iter(tool.params.model_fields.values()), None)
        more = ' "…"' if first is not None and first.is_required() else " …" if flag else ""
        return f"`tilewright {command_of(tool)}{more}{flag and ' --' + flag.replace('_', '-')}`"

    named = rf"(?<![`\w])(?P<tool>{'|'.join(names)})\b(?: with (?P<flag>{flags})\b(?:=true)?)?"
    text = re.sub(r"\bcall (?=`tilewright)", "run ", re.sub(named, command, text))
    return text.replace(uri(HOST, "references"), str(references()))


def failed(text: str) -> typer.Exit:
    said = printable(in_commands(text))
    errors.print(said, style="red")
    if _Form.as_json:
        print_json({"error": said})
    return typer.Exit(2)


def asked(question: str, otherwise: str, as_json: bool = False) -> bool:
    """What a person answers, by default yes. Nothing is asked without a terminal, nor of who reads JSON: the command
    ends, and says what to do `otherwise`."""
    if as_json or not sys.stdin.isatty():
        raise failed(f"nobody can be asked here: {otherwise}")
    return typer.confirm(question, default=True)


def done(work: Callable[[], ResultT]) -> ResultT:
    """What the work returns. A `UsageError` ends the command."""
    try:
        return work()
    except UsageError as error:
        raise failed(str(error)) from None


def place_of(root: Path, task: str) -> tuple[Path, str]:
    """Where to work, and the path of the task there: if no root was given and the task lies in another repository, in
    that repository."""
    here, there = repository_of(HERE), repository_of(Path(task))
    if not task or root != HERE or there is None or (here is not None and there.is_relative_to(here)):
        return root, task
    return there, str(Path(task).resolve())


def in_loop(root: Path, work: Callable[[Any], Awaitable[ResultT]]) -> ResultT:
    """What the work returns that is given the loop of the checkout."""
    from tilewright.session.loop import Loop

    async def run() -> ResultT:
        loop = Loop(root.resolve())
        try:
            return await work(loop)
        finally:
            await loop.close()

    return done(lambda: asyncio.run(run()))


def print_json(value: Any) -> None:
    """Models, dataclasses, and lists and tables of them. A field without a value is left out."""
    typer.echo(to_json(value, indent=2, exclude_none=True).decode())


def print_answer(as_json: bool, lines: Iterable[Any], summary: str, **fields: Any) -> None:
    """What a command answers: the lines for people, or an object with a summary, as tools answer."""
    if as_json:
        print_json({"summary": summary} | fields)
    for line in [] if as_json else lines:
        console.print(line)


def print_lines(lines: list[Line], as_json: bool) -> None:
    """How things stand, a line each, and the command that fixes what fails; ends the command, with 1 where any does."""
    colours = {Mark.OK: "green", Mark.WARN: "yellow", Mark.FAIL: "red"}
    failed = [line.what for line in lines if line.mark is Mark.FAIL]
    shown = []
    for line in lines:
        shown.append(Text.assemble((f"{line.mark:5}", colours[line.mark]), f" {line.what:16} {printable(line.detail)}"))
        shown += [Text(f"{'':23}to fix it: {line.remedy}")] if line.remedy else []
    status = "failed" if failed else "passed"
    print_answer(as_json, shown, f"failed: {', '.join(failed) or 'nothing'}", status=status, checks=lines)
    raise typer.Exit(1 if failed else 0)
