"""A tool is one object: its arguments, its answer, what it may change, and the function that does its work.

MCP, the command line, Python and the reference pages are loops over the table of tools. No tool is declared twice.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from tilewright.errors import UsageError
from tilewright.taskerrors import problems
from tilewright.wire.record import Record

if TYPE_CHECKING:
    from tilewright.tools.workspace import Workspace

Tell = Callable[[str], Awaitable[None]]
"""Takes a line about how far the work is."""


class Effect(Enum):
    """What a call may change. Clients decide by it whether to ask their user first."""

    READS = "It changes nothing."
    REPEATS = "It runs the candidate or writes files of its own. The same call again changes nothing more."
    ADDS = "Each call adds to the session."
    OVERWRITES = "It may overwrite files of yours, if you ask for that."
    DISCARDS = "It discards work. The same call again changes nothing more."


class Params(Record):
    """The arguments of a tool. They are flat: a field is a property of a JSON object, an option and a keyword.

    The docstring describes the tool. The first field is the command's argument, the others are its options."""


ParamsT = TypeVar("ParamsT", bound=Params)
ReportT = TypeVar("ReportT", bound=Record)


@dataclass(frozen=True)
class Tool(Generic[ParamsT, ReportT]):
    """One tool. A report without a `status` has passed."""

    name: str
    title: str
    effect: Effect
    params: type[ParamsT]
    report: type[ReportT]
    work: Callable[[Workspace, ParamsT, Tell], Awaitable[ReportT]]
    command: str = ""
    """The command's name, after its group's if it has one, where it differs from the tool's."""
    lines: Callable[[ReportT], Iterable[Any]] | None = None
    """What the command prints, if it is not the report's fields: texts and what rich can print."""
    passed: Callable[[ReportT], bool] = lambda report: getattr(report, "status", "passed") == "passed"

    @property
    def description(self) -> str:
        return " ".join((self.params.__doc__ or "").split())

    def parse(self, arguments: Mapping[str, Any]) -> ParamsT:
        """The arguments of a call. Raises `UsageError`, with a line for each wrong argument."""
        meant = {name: _given(value) for name, value in arguments.items()}
        try:
            return self.params.model_validate({name: value for name, value in meant.items() if value is not None})
        except ValidationError as error:
            wrong = "; ".join(problems(error, self.params))
            raise UsageError(f"{self.name}: {wrong}") from None


def _pairs(value: Any) -> Any:
    """Texts of a command line such as `M=700` as the object that they mean."""
    if not isinstance(value, list):
        return value
    lists = _lists(value)
    if several := [name for name, values in lists.items() if len(values) > 1]:
        raise ValueError(f"{several[0]} takes one value, written NAME=VALUE; a decimal has a point, as in 0.01")
    return {name: values[0] for name, values in lists.items()}


def _lists(value: Any) -> Any:
    """Texts of a command line such as `TILE=64,128` as the object that they mean."""
    if not isinstance(value, list):
        return value
    from tilewright.knobs import parse_values

    return parse_values(map(str, value))


Scalar = int | float | bool | str
Settings = Annotated[dict[str, Scalar], BeforeValidator(_pairs)]
"""Values by name. On the command line: `NAME=VALUE`, repeated."""
Choices = Annotated[dict[str, list[Scalar]], BeforeValidator(_lists)]
"""Lists of values by name. On the command line: `NAME=VALUE,VALUE`, repeated."""
Arch = Annotated[str, Field(pattern=r"^sm_\d{2,3}$")]

_UNSET = ("", "null", "none", "undefined")
"""Texts that a client sends for an argument that it does not set."""


def _given(value: Any) -> Any:
    """An argument as it is meant: some clients send JSON in a text, and some send an argument that they do not set.
    None for an argument that is not set."""
    if isinstance(value, str):
        if value.strip(" \t\r\n[]'\"").casefold() in _UNSET:
            return None
        with suppress(ValueError):
            return _given(json.loads(value)) if value[:1] in "[{" else value
    if isinstance(value, list):
        kept = [part for part in map(_given, value) if part is not None]
        return kept if kept or not value else None
    if isinstance(value, dict):
        return {name: part for name, part in value.items() if part is not None}
    return value


_OF_ARGUMENTS = (
    "type", "enum", "description", "default", "minimum", "maximum", "minLength", "maxLength", "pattern", "maxItems",
)  # fmt: skip
_OF_ANSWERS = ("type", "description")


def arguments_schema(params: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of arguments, in the keywords that every client reads."""
    return _schema(params, _OF_ARGUMENTS) | {"additionalProperties": False}


def answer_schema(report: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of an answer: the names, types and meanings of its fields. An agent reads the answer itself."""
    return _schema(report, _OF_ANSWERS)


def _schema(model: type[BaseModel], keywords: tuple[str, ...]) -> dict[str, Any]:
    schema = model.model_json_schema()
    fields = {name: _brief(part, schema, keywords) for name, part in schema.get("properties", {}).items()}
    required = {"required": schema["required"]} if "required" in schema else {}
    return {"type": "object", "properties": fields} | required


def _brief(part: dict[str, Any], schema: dict[str, Any], keywords: tuple[str, ...]) -> dict[str, Any]:
    if "$ref" in part:
        definition = schema["$defs"][part["$ref"].rpartition("/")[2]]
        part = {key: value for key, value in definition.items() if key != "description"} | part
    arms = [arm for arm in part.get("anyOf", []) if arm != {"type": "null"}]
    if {"type": "number"} in arms:
        arms = [arm for arm in arms if arm != {"type": "integer"}]
    if len(arms) == 1:
        return _brief({key: value for key, value in part.items() if key != "anyOf"} | arms[0], schema, keywords)
    brief = {key: part[key] for key in keywords if part.get(key) not in (None, "", [], {})}
    if "const" in part and "enum" in keywords:
        brief["enum"] = [part["const"]]
    if arms and "pattern" in keywords:
        brief["anyOf"] = [_brief(arm, schema, keywords) for arm in arms]
    if "pattern" in keywords:
        for key in ("items", "additionalProperties"):
            if isinstance(part.get(key), dict):
                brief[key] = _brief(part[key], schema, keywords)
    return brief
