"""What is wrong with a task file or with the arguments of a call: the key, and what it has to be."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from tilewright.errors import UsageError
from tilewright.text import cut, printable

ModelT = TypeVar("ModelT", bound=BaseModel)


class TaskError(UsageError, ValueError):
    """A task file is wrong. The text names the file, the key, what is wrong and what to do instead."""


def validated(model: type[ModelT], data: Any, before: str, **tables: type[BaseModel]) -> ModelT:
    """The data as a model. Raises `TaskError` with a line for each wrong key, `before` in front of it. `tables`: what
    the model's types do not say of the keys of a table."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        lines = problems(error, model, tables)
        raise TaskError("\n".join(f"{before}{line}" for line in lines)) from None


def problems(
    error: ValidationError, model: type[BaseModel], tables: Mapping[str, type[BaseModel]] | None = None
) -> Iterator[str]:
    """A line for each wrong key of a model's data."""
    parts = {
        name: part
        for name, field in model.model_fields.items()
        for part in (field.annotation, *get_args(field.annotation))
        if isinstance(part, type) and issubclass(part, BaseModel)
    }
    known = {name: sorted(table.model_fields) for name, table in ({"": model} | parts | dict(tables or {})).items()}
    paths: set[str] = set()
    for problem in error.errors(include_url=False):
        path = place_of(problem["loc"])
        if path not in paths:
            owner = next((name for name in known if name and name in problem["loc"]), "")
            text = complaint(problem, known[owner])
            yield f"{path}: {text}" if path else text
        paths.add(path)


def place_of(parts: Iterable[int | str]) -> str:
    """Where a value stands, as in `cases[0].shape`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts if part not in _ARMS)
    return printable(cut(" ".join(text.removeprefix(".").split()), 100))


def complaint(problem: Any, known: Iterable[str]) -> str:
    """What is wrong with a value, mostly in pydantic's words. `known` are the names that may stand in its place."""
    names, key = list(known), str(problem["loc"][-1]) if problem["loc"] else ""
    if problem["type"] == "missing":
        return "missing"
    if problem["type"] == "value_error":
        return str(problem["ctx"]["error"])
    if problem["type"] == "extra_forbidden":
        close = difflib.get_close_matches(key, names, n=1)
        others = f"known keys are {', '.join(names) or 'none'}"
        return f"unknown key; {f'did you mean {close[0]!r}?' if close else others}"
    text = "must be a number, true or false, or a text" if key in _ARMS else problem["msg"]
    text = re.sub(r"^[A-Z][a-z]+ should ", "must ", text)
    text = re.sub(r" or instance of \w+| after validation, not \d+$|, unable to .*", "", text)
    value = json.dumps(problem["input"], default=repr)
    return f"{text}, not {value if len(value) <= 60 else f'{value[:58]} …'}"


_ARMS = ("int", "float", "str", "bool")
"""What pydantic calls the kinds of a value that may be of several."""
