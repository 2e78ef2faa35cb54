"""python -m tests.pages.reference    write the generated parts of docs/reference/ anew

A part stands between `<!-- generated: NAME -->` and `<!-- end -->`. It is made from the tools' schemas, the commands'
options, the models of task.toml, or the docstrings of the Python interface. Tests compare the pages with it.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from tests.pages.page import ROOT

WORDS = {str: "string", int: "integer", float: "number", bool: "flag", Path: "path"}
FOLDER = ROOT / "docs" / "reference"
PART = re.compile(r"(<!-- generated: ([\w.]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def tools() -> str:
    """Every tool: what it does, its arguments, its answer."""
    from tilewright.tools import table

    parts: list[str] = []
    for tool in table().values():
        parts += [f"## {tool.name}", tool.description, tool.effect.value]
        parts.append(_keys(tool.params, "argument") if tool.params.model_fields else "It takes no arguments.")
        parts += ["It answers:", _keys(tool.report, "field")]
    return "\n\n".join(parts)


def commands() -> str:
    """Every command with its arguments and options."""
    from tilewright.interface.commands import app

    return "\n\n".join(_of_group(typer.main.get_command(app), "tilewright"))


def _of_group(group: Any, path: str) -> Iterator[str]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from _of_group(command, f"{path} {name}")
            continue
        yield f"## {path} {name}"
        yield _sentences(inspect.cleandoc(command.help or ""))
        rows = [_parameter(one) for one in command.params if one.name != "help"]
        if rows:
            yield _table(["argument or option", "type", "default", ""], rows)


def _parameter(parameter: Any) -> list[str]:
    names = [f"`{one}`" for one in [*parameter.opts, *parameter.secondary_opts]]
    if parameter.param_type_name == "argument":
        names = [f"`{parameter.name.upper()}`"]
    kind = parameter.type_descriptor.annotation
    kind = (
        next((arm for arm in get_args(kind) if arm is not type(None)), kind) if type(None) in get_args(kind) else kind
    )
    repeated = get_origin(kind) is list
    kind = get_args(kind)[0] if repeated else kind
    word = ", ".join(f"`{choice}`" for choice in get_args(kind)) if get_origin(kind) is Literal else WORDS[kind]
    default = "required" if parameter.required else _value(parameter.default)
    return [", ".join(names), f"{word}, may be repeated" if repeated else word, default, parameter.help or ""]


def task() -> str:
    """The keys of a native task's task.toml."""
    from tilewright.cases import Draw
    from tilewright.task import TaskFile, Tests, Tolerance, ValueRules

    parts = [_keys(TaskFile)]
    for table, model in (
        ("[tolerance]", Tolerance),
        ("[values]", ValueRules),
        ("[tests]", Tests),
        ("[[hidden]]", Draw),
    ):
        parts += [f"### {table}", _keys(model)]
    return "\n\n".join(parts)


def repository() -> str:
    """The keys of a repository task's task.toml."""
    from tilewright.commandtask import Benchmark, Command, CommandTaskFile

    parts = [_keys(CommandTaskFile)]
    for table, model in (("[correctness]", Command), ("[benchmark]", Benchmark)):
        parts += [f"### {table}", _keys(model)]
    return "\n\n".join(parts)


def rules() -> str:
    """The rules of a session."""
    from tilewright.rules import Rules

    return _keys(Rules)


def configuration() -> str:
    """The keys of `[tool.tilewright]` in pyproject.toml."""
    from tilewright.configuration import Configuration

    return _keys(Configuration)


def python() -> str:
    """The functions and classes that scripts and task files import."""
    from tilewright import capture, compare_programs, run
    from tilewright.referee.compare import ComparisonResult, Measured
    from tilewright.task import Work

    parts: list[str] = []
    places: dict[str, Any] = {
        "tilewright.task.Work": Work,
        "tilewright.run": run,
        "tilewright.capture": capture,
        "tilewright.compare_programs": compare_programs,
    }
    for place, value in places.items():
        signature = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(value)))
        kind = "class" if inspect.isclass(value) else "def"
        called = f"{kind} {value.__name__}{signature}"
        parts += [f"## {place}", f"```text\n{_wrapped(called)}\n```", _sentences(inspect.getdoc(value) or "")]
    for model in (ComparisonResult, Measured):
        parts += [f"## {model.__name__}", inspect.getdoc(model) or "", _keys(model)]
    return "\n\n".join(parts)


PARTS: dict[str, Callable[[], str]] = {
    "tools": tools,
    "commands": commands,
    "task": task,
    "repository": repository,
    "rules": rules,
    "configuration": configuration,
    "python": python,
}


def generated(text: str) -> str:
    """The page `text` with its generated parts made anew. Raises KeyError for a part that nothing makes."""
    return PART.sub(lambda part: f"{part[1]}\n{PARTS[part[2]]()}\n\n{part[3]}", text)


def _keys(model: type[BaseModel], kind: str = "key") -> str:
    rows = []
    schema = model.model_json_schema()
    for name, field in model.model_fields.items():
        made = field.get_default(call_default_factory=True, validated_data={})
        default = "required" if made is PydanticUndefined else _value(made)
        rows.append([f"`{name}`", _type(schema["properties"][name], schema), default, field.description or ""])
    return _table([kind, "type", "default", ""], rows)


def _type(field: dict[str, Any], schema: dict[str, Any]) -> str:
    """A JSON schema's type in words."""
    if reference := field.get("$ref"):
        return _type(schema["$defs"][reference.rsplit("/", 1)[1]], schema)
    if "enum" in field:
        return ", ".join(f"`{one}`" for one in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    if options := field.get("anyOf") or field.get("oneOf"):
        named = [_type(one, schema) for one in options if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(named))
    kind = field.get("type", "any")
    if kind == "array":
        return f"list of {_type(field.get('items', {}), schema)}"
    if kind == "object" and isinstance(values := field.get("additionalProperties"), dict):
        return f"table of {_type(values, schema)}"
    return {"object": "table"}.get(kind, kind) if isinstance(kind, str) else " or ".join(kind)


def _value(value: Any) -> str:
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_defaults=True)
    if value is None or value in ("", [], {}, ()) or callable(value):
        return ""
    return f"`{json.dumps(value, default=str)}`"


def _sentences(text: str) -> str:
    """A docstring without its indentation, each paragraph on a line."""
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(text))
    return "\n\n".join(" ".join(part.split()) for part in paragraphs).replace("``", "`")


def _table(head: list[str], rows: list[list[str]]) -> str:
    cells = [head, ["---"] * len(head)] + [
        [cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _wrapped(signature: str) -> str:
    return signature if len(signature) < 90 else re.sub(r"(?<=[(,]) ?(?=[\w*]+[:,=])", "\n    ", signature)


def main() -> None:
    for page in sorted(FOLDER.glob("*.md")):
        page.write_text(generated(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
