"""What is wrong with a task file, in words of TOML: the key, what is wrong with it, what to do instead."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tilewright.text import printable


class TaskError(ValueError):
    """A task file is wrong. The text names the file, the key, what is wrong and what to do instead."""


def problems(error: ValidationError, known: Mapping[str, list[str]]) -> Iterator[str]:
    """A line for each complaint. `known` has the keys of each table by the table's name; "" is the top level."""
    for problem in error.errors():
        path = ""
        for part in problem["loc"]:
            path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
        path = printable(" ".join(path.split()))
        key = str(problem["loc"][-1]) if problem["loc"] else ""
        if problem["type"] == "extra_forbidden":
            owner = next((name for name in known if name and name in problem["loc"]), "")
            close = difflib.get_close_matches(key, known[owner], n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; known keys are {', '.join(known[owner])}"
            yield f"{path}: unknown key{hint}"
        elif problem["type"] == "missing":
            yield f"{path}: missing; {_REMEDY.get(key, 'add it')}"
        elif key in _UNION:
            if key == "int":  # one of the four complaints about one value
                yield f"{path.removesuffix('.int')}: must be a number, a string or a bool"
        else:
            message = _worded(problem, path)
            yield f"{path}: {message}" if path else message


_UNION = ("int", "float", "str", "bool")


def _worded(problem: ErrorDetails, path: str) -> str:
    """A complaint of the validator in words of TOML, none of which are the validator's."""
    tables = path.partition("[")[0] in ("cases", "hidden")
    context = problem.get("ctx", {})
    match problem["type"]:
        case "value_error":
            return str(context["error"])
        case "model_type" | "dict_type":
            example = ", such as { min = 1, max = 64 } or { choices = [1, 7] }" if path.startswith("hidden") else ""
            return f"must be a table{example}"
        case "list_type":
            return f"write each as a [[{path}]] table" if tables else 'must be a list, such as ["module.py"]'
        case "too_short":
            return "must not be empty"
        case "string_pattern_mismatch":
            return "must be 1 to 64 lower case letters, digits, _ and -"
        case "literal_error" | "enum":
            return f"must be {context['expected']}"
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal" as kind:
            (bound,) = context.values()
            return f"must be {_COMPARED[kind]} {bound:g}"
        case kind:
            return f"must be {_NOUNS.get(kind.partition('_')[0], 'of another type')}"


_COMPARED = {
    "greater_than": "more than",
    "greater_than_equal": "at least",
    "less_than": "less than",
    "less_than_equal": "at most",
}
_NOUNS = {
    "string": "a string",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
}
_REMEDY = {
    "name": 'add name = "my_kernel"',
    "entry": 'add entry = "module:function", the callable to make faster',
    "editable": 'add editable = ["module.py"], the files an experiment may change',
    "cases": "add at least one [[cases]] table with the shapes and dtype to measure",
}
