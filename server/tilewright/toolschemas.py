"""The JSON schemas of tools as clients see them, and what is said of arguments that do not fit.

A schema is pydantic's own, brought into the few keywords that every client reads, Gemini's included.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

Schema = dict[str, Any]

_OF_ARGUMENTS = (
    "type", "enum", "description", "default", "minimum", "maximum", "minLength", "maxLength", "pattern", "minItems",
    "maxItems", "required",
)  # fmt: skip
_NULL = {"type": "null"}
_NOTHING: tuple[Any, ...] = (None, "", [], {})
_UNSET = ("", "null", "none", "undefined")
"""Texts that a client sends for a parameter that it does not set."""
LONGEST_ENUM = 6
"""Values of a field of an answer that are listed: a client reads them, and need not choose one."""
DEEPEST = 2
"""Objects within each other that an answer's schema shows. The fields of the innermost are not listed: an agent reads
the answer itself."""
SHOWN_VALUE = 60
"""Characters of a wrong value in an error."""


def of_arguments(schema: Schema) -> Schema:
    """The schema of a tool's arguments: no reference, title or null, and no value that a client may not send."""
    return _brief(_inlined(schema, schema.get("$defs", {}))) | {"additionalProperties": False}


def of_answer(schema: Schema) -> Schema:
    """The schema of a tool's answer: the names and types of its fields. A field without a value is left out."""
    brief = _brief(_inlined(schema, schema.get("$defs", {})), DEEPEST)
    del brief["description"]
    return brief | {"required": schema["required"]} if schema.get("required") else brief


def without_nulls(value: Any) -> Any:
    """An answer without the fields that have no value."""
    if isinstance(value, dict):
        return {name: without_nulls(part) for name, part in value.items() if part is not None}
    return [without_nulls(part) for part in value] if isinstance(value, list) else value


def complaint(tool: str, schema: Schema, arguments: Mapping[str, Any], error: ValidationError) -> str:
    """What is wrong with the arguments of a call: for each wrong one what it takes, and what it got.

    `schema` is pydantic's, of all arguments of the tool."""
    whole = _inlined(schema, schema.get("$defs", {}))
    found: dict[str, str] = {}
    for problem in error.errors(include_url=False):
        found.setdefault(str(problem["loc"][0]) if problem["loc"] else "", _worded(tool, whole, arguments, problem))
    return "; ".join(found.values())


def without_unset(schema: Schema, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments without those that are null, one of `_UNSET`, or a list of nothing else.

    An object's values may be texts of the kernel's own, such as "none": of those only null and "null" are left out."""
    known = schema.get("properties", {})
    found = {}
    for name, value in arguments.items():
        takes_text = '"string"' in json.dumps(known.get(name, {}).get("additionalProperties", ""))
        if (kept := _set(value, _UNSET, ("null",) if takes_text else _UNSET)) is not None:
            found[name] = kept
    return found


def _set(value: Any, unset: Sequence[str], inside: Sequence[str]) -> Any:
    """What is set of a value; None if nothing is. `inside`: the texts that mean so in an object."""
    if isinstance(value, str):
        return None if value.strip(" \t\r\n[]'\"").casefold() in unset else value
    if isinstance(value, list):
        kept = [part for part in (_set(one, unset, inside) for one in value) if part is not None]
        return kept if kept or not value else None
    if isinstance(value, dict):
        parts = {name: _set(part, inside, inside) for name, part in value.items()}
        return {name: part for name, part in parts.items() if part is not None}
    return value


def unwritable(arguments: Mapping[str, Any]) -> str:
    """What is said of text among the arguments that no file's name and no record can hold; empty where there is none.

    JSON can carry it, and git, the file system and UTF-8 cannot."""
    waiting: list[tuple[str, Any]] = list(arguments.items())
    for name, _ in waiting:
        if not _writable(name):
            return f"the name {shown(name)} holds {_UNWRITABLE}"
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, str) and not _writable(value):
            return f"{name} holds {_UNWRITABLE}: {shown(value)}"
        if isinstance(value, Mapping):
            waiting += [(name, part) for pair in value.items() for part in pair]
        elif isinstance(value, Sequence) and not isinstance(value, str):
            waiting += [(name, part) for part in value]
    return ""


def allowed(schema: Schema) -> str:
    """What a value may be, in words. `schema` has no references."""
    if "anyOf" in schema:
        arms = [arm for arm in schema["anyOf"] if arm != _NULL]
        return _or([allowed(arm) for arm in arms if not (arm["type"] == "integer" and {"type": "number"} in arms)])
    if values := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return _or([str(value) for value in values])
    match schema.get("type"):
        case "integer" | "number" as kind:
            noun = "a whole number" if kind == "integer" else "a number"
            return noun + _between(schema.get("minimum"), schema.get("maximum"), "from", "of")
        case "boolean":
            return "true or false"
        case "string":
            if examples := schema.get("examples"):
                return f"a text such as {_or(examples)}"
            size = _between(schema.get("minLength"), schema.get("maxLength"), "of", "of")
            return f"a text{size} characters" if size else "a text"
        case "array":
            size = _between(schema.get("minItems"), schema.get("maxItems"), "of", "of")
            return f"a list{size}{' items' if size else ''}, each {allowed(schema['items'])}"
        case "object":
            values = schema.get("additionalProperties")
            return f"an object, each of whose values is {allowed(values)}" if isinstance(values, dict) else "an object"
    return "another value"


def shown(value: Any) -> str:
    """A value as JSON, short enough for an error."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= SHOWN_VALUE else f"{text[: SHOWN_VALUE - 2]} …"


_UNWRITABLE = "a NUL or half a surrogate pair, which is no text"


def _writable(text: str) -> bool:
    return not any(one == "\0" or "\ud800" <= one <= "\udfff" for one in text)


def _inlined(schema: Schema, known: Mapping[str, Schema]) -> Schema:
    """The same without references, of which the description at the place wins over the definition's."""
    if (reference := schema.get("$ref")) is not None:
        definition = dict(known[reference.rpartition("/")[2]])
        definition.pop("description", None)
        return _inlined(definition | {key: value for key, value in schema.items() if key != "$ref"}, known)
    found = {key: value for key, value in schema.items() if key != "$defs"}
    if "anyOf" in found:
        found["anyOf"] = [_inlined(arm, known) for arm in found["anyOf"]]
    for key in ("items", "additionalProperties"):
        if isinstance(found.get(key), dict):
            found[key] = _inlined(found[key], known)
    if "prefixItems" in found:  # a pair, both of one type
        found["items"] = _inlined(found.pop("prefixItems")[0], known)
    if "properties" in found:
        found["properties"] = {name: _inlined(part, known) for name, part in found["properties"].items()}
    return found


def _brief(schema: Schema, answer: int = 0) -> Schema:
    """Return the same schema in few keywords. Of an answer, `answer` objects deep, these are the names, types and
    meanings of its fields, and the choices if they are few."""
    arms = [arm for arm in schema.get("anyOf", []) if arm != _NULL]
    arms = [arm for arm in arms if not (arm.get("type") == "integer" and {"type": "number"} in arms)]
    if len(arms) == 1:
        return _brief(arms[0] | {key: value for key, value in schema.items() if key != "anyOf"}, answer)
    found = {key: schema[key] for key in _OF_ARGUMENTS if schema.get(key) not in _NOTHING}
    if answer:
        found = {key: found[key] for key in ("type", "enum", "description") if key in found}
    if "const" in schema:
        found["enum"] = [schema["const"]]
    if answer and len(found.get("enum", [])) > LONGEST_ENUM:
        del found["enum"]
    if arms and not answer:
        found["anyOf"] = [_brief(arm) for arm in arms]
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict) and (part := _brief(schema[key], answer)):
            found[key] = part
    if "properties" in schema and answer != 1:
        found["properties"] = {name: _brief(part, max(answer - 1, 0)) for name, part in schema["properties"].items()}
    return found


def _worded(tool: str, whole: Schema, arguments: Mapping[str, Any], problem: Any) -> str:
    place, schema, value = "", whole, arguments
    if problem["type"] in ("missing", "extra_forbidden"):
        name, known = str(problem["loc"][0]), whole.get("properties", {})
        if problem["type"] == "missing":
            about = known[name].get("description", "")
            return f"{tool} needs {name}, {allowed(known[name])}{f': {about}' if about else ''}"
        close = difflib.get_close_matches(name, known, n=1)
        there = f"it takes {', '.join(known)}" if known else "it takes no arguments"
        return f"{tool} has no argument {shown(name)}; {f'did you mean {close[0]}?' if close else there}"
    for part, inner, deeper in _walk(whole, arguments, problem["loc"]):
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else part
        schema, value = inner, deeper
    if problem["type"] in ("value_error", "assertion_error"):
        return f"{place}: {problem['ctx']['error']}"
    return f"{place} takes {allowed(schema)}, not {shown(value)}"


def _walk(schema: Schema, value: Any, path: Sequence[int | str]) -> Iterator[tuple[int | str, Schema, Any]]:
    """Each step of a path with the schema and the value there, as far as it leads into both."""
    for part in path:
        if isinstance(value, Mapping) and part in value:
            inner = schema.get("properties", {}).get(part) or schema.get("additionalProperties")
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            inner = schema.get("items")
        else:
            return
        if not isinstance(inner, dict):
            return
        schema, value = inner, value[part]
        yield part, schema, value


def _between(low: float | None, high: float | None, both: str, one: str) -> str:
    """A range in words, with a space before it; empty where it has no ends."""
    if low is not None and high is not None:
        return f" {both} {low:g} to {high:g}"
    if high is not None:
        return f" {one} at most {high:g}"
    return f" {one} at least {low:g}" if low is not None else ""


def _or(words: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
