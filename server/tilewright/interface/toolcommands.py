"""A command for each tool, made from the tool's arguments."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from tilewright.interface.terminal import (
    HERE,
    Json,
    Listing,
    Root,
    command_of,
    console,
    done,
    errors,
    in_commands,
    place_of,
    print_json,
    print_progress,
)
from tilewright.text import printable
from tilewright.tools import table
from tilewright.tools.tool import Tool
from tilewright.tools.workspace import call
from tilewright.wire.record import Record

LINE = 240
"""Characters of a part of a report that goes on one line."""

BROKEN_OFF = (
    "broken off: nothing runs on, and your edit and the log stay. The same command again goes on, and `tilewright "
    "session status` says where the session stands"
)


class Group(Listing):
    """Commands that are found by their tool's name, too: the pages for agents name tools."""

    def get_command(self, ctx: Any, name: str) -> Any:
        tool = table().get(name.replace("-", "_"))
        group, _, command = command_of(tool).rpartition(" ") if tool is not None else ("", "", name)
        owner: Any = self.commands.get(group)
        if owner is None and command not in self.commands:
            named = [path for path, inner in self.commands.items() if command in getattr(inner, "commands", {})]
            if named:
                ctx.fail(f"no command {command!r}; did you mean `tilewright {named[0]} {command}`?")
        return owner.commands[command] if owner is not None else super().get_command(ctx, command)


def add_tools(app: typer.Typer, **groups: typer.Typer) -> None:
    """Make each tool a command of `app`, or of one of its groups."""
    for tool in table().values():
        group, _, command = command_of(tool).rpartition(" ")
        add_tool(groups[group] if group else app, command, tool)


def add_tool(app: typer.Typer, name: str, tool: Tool[Any, Any]) -> None:
    app.command(name, help=tool.description)(_command(tool))


def _command(tool: Tool[Any, Any]) -> Any:
    def command(root: Path, as_json: bool, **values: Any) -> None:
        given = {name: value for name, value in values.items() if value not in (None, "", [])}
        if "task" in given:
            root, given["task"] = place_of(root, given["task"])
        try:
            report = done(lambda: call(tool, root, given, print_progress))
        except KeyboardInterrupt:
            errors.print(BROKEN_OFF)
            raise typer.Exit(130) from None
        if as_json:
            print_json(report)
        else:
            for number, line in enumerate((tool.lines or report_lines)(report)):
                text = printable(in_commands(line)) if isinstance(line, str) else line
                console.print(text, style=None if number else "bold")
        raise typer.Exit(0 if tool.passed(report) else 1)

    parameters = [_parameter(name, field, not index) for index, (name, field) in enumerate(_fields(tool))]
    parameters.append(inspect.Parameter("root", inspect.Parameter.KEYWORD_ONLY, default=HERE, annotation=Root))
    parameters.append(inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _fields(tool: Tool[Any, Any]) -> list[tuple[str, FieldInfo]]:
    return list(tool.params.model_fields.items())


def _parameter(name: str, field: FieldInfo, is_first: bool) -> inspect.Parameter:
    """A tool's first argument is the command's argument, the others are its options."""
    kind, default = _kind(field.annotation), field.get_default(call_default_factory=True)
    if field.is_required():
        default = inspect.Parameter.empty
    elif get_origin(kind) is list:
        kind, default = kind | None, None
    about = typer.Argument if is_first else typer.Option
    names = (f"--{name.replace('_', '-')}",) if kind is bool else ()  # without it typer adds --no-NAME
    annotation: Any = Annotated[kind, about(*names, help=_help(field))]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _kind(annotation: Any) -> Any:
    """The type of a command's parameter: texts for lists and for tables, else the argument's own."""
    if get_origin(annotation) in (list, dict):
        return list[str]
    return annotation


def _help(field: FieldInfo) -> str:
    text = field.description or ""
    if get_origin(field.annotation) is dict:
        example = "NAME=1,2" if get_origin(get_args(field.annotation)[1]) is list else "NAME=VALUE"
        return f"{example}, may be repeated: {text}"
    return f"{text}; may be repeated" if get_origin(field.annotation) is list else text


def report_lines(report: Record) -> Iterator[str]:
    """The fields that say something, a line each. The summary comes first, as a text of its own."""
    for name, value in _filled(report.model_dump(mode="json")).items():
        if name == "summary":
            yield value
        elif isinstance(value, list | dict):
            yield f"{name}:"
            for part in value if isinstance(value, list) and isinstance(value[0], dict) else [value]:
                text = json.dumps(part, ensure_ascii=False)
                yield f"  {text}" if len(text) <= LINE else json.dumps(part, ensure_ascii=False, indent=2)
        else:
            yield f"{name}:\n{value}" if "\n" in str(value) else f"{name}: {value}"


def _filled(value: Any) -> Any:
    """The value without its parts that say nothing."""
    if isinstance(value, list):
        return [_filled(part) for part in value]
    if isinstance(value, dict):
        return {name: _filled(part) for name, part in value.items() if part not in ("", None, [], {})}
    return value
