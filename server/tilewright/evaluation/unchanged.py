"""Whether a candidate has changed the functions that its own process describes it with.

On the `cpu` backend a worker says itself what its candidate's call launches. What Python code can change, it can also
hide, so this finds the plain attempts and is no wall: a latency on that backend is a model's, and marked so.
"""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

PACKAGES = ("tilewright", "cuda.tile", "json", "struct", "socket")
_PLAIN = (int, float, str, bytes, tuple, frozenset)


class Unchanged:
    """The functions, classes and constants of `PACKAGES`, as they are when this is made."""

    def __init__(self) -> None:
        self._before = dict(_everything())

    def difference(self) -> str:
        """What is otherwise now, by name; empty where nothing is."""
        if sys.getprofile() or sys.gettrace() or threading.getprofile() or threading.gettrace():
            return "a profile or trace function was set"
        now = dict(_everything())
        return next((name for name, seen in self._before.items() if now.get(name) != seen), "")


def _everything() -> Iterator[tuple[str, Any]]:
    for name, module in [*sys.modules.items()]:
        if name == "__main__" or name.partition(".")[0] in PACKAGES or name.startswith("cuda.tile"):
            for key, value in [*vars(module).items()]:
                place = f"{name}.{key}"
                if isinstance(value, type) and value.__module__ == name:
                    yield place, id(value)
                    for inner, part in [*vars(value).items()]:
                        yield f"{place}.{inner}", _identity(part)
                elif callable(value):
                    yield place, _identity(value)
                elif name.startswith("tilewright") and not key.startswith("__") and _is_constant(value):
                    yield place, repr(value)


def _is_constant(value: Any) -> bool:
    if isinstance(value, dict):  # not a registry, which fills as modules are imported
        return bool(value) and not any(callable(part) for part in value.values())
    return isinstance(value, _PLAIN)


def _identity(value: Any) -> Any:
    value = getattr(value, "__func__", value)
    if isinstance(value, types.FunctionType):
        return id(value), id(value.__code__), repr(value.__defaults__), repr(value.__kwdefaults__)
    return id(value) if callable(value) or isinstance(value, property) else None
