"""A pytest plugin that notes what a function is called with, for a run of its own: `-p tilewright.attach.capture`.

It goes by the function's name wherever modules hold it; a call through a registry that took it earlier is not seen.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import sys
from pathlib import Path
from typing import Any

DISTINCT = 200
_calls: dict[str, dict[str, Any]] = {}


def pytest_addoption(parser: Any) -> None:
    """The function, as module:function, and the file that its calls are written to."""
    parser.addoption("--tilewright-calls-of", required=True)
    parser.addoption("--tilewright-calls-into", required=True)


def pytest_collection_finish(session: Any) -> None:
    """Put a wrapper in the function's place in every module that holds it by now."""
    module_name, _, name = session.config.getoption("--tilewright-calls-of").partition(":")
    original = getattr(importlib.import_module(module_name), name)
    signature = inspect.signature(original)

    @functools.wraps(original)
    def noted(*arguments: Any, **named: Any) -> Any:
        note(signature, arguments, named)
        return original(*arguments, **named)

    for module in list(sys.modules.values()):
        for held, value in list(getattr(module, "__dict__", {}).items()):
            if value is original:
                setattr(module, held, noted)


def pytest_sessionfinish(session: Any) -> None:
    """Write the distinct calls, oldest first."""
    into = Path(session.config.getoption("--tilewright-calls-into"))
    into.write_text(json.dumps(list(_calls.values())), encoding="utf-8")


def note(signature: inspect.Signature, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Keep a call's arguments: of tensors shape and dtype, of numbers and words the value, of others the type."""
    try:
        bound = signature.bind(*arguments, **named).arguments
    except TypeError:
        return  # the call fails by itself
    call: dict[str, Any] = {"tensors": {}, "values": {}, "others": {}}
    for name, value in bound.items():
        if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "shape"):
            dtype = str(value.dtype).removeprefix("torch.")
            call["tensors"][name] = {"shape": list(value.shape), "dtype": dtype}
        elif isinstance(value, int | float | str | bool | None):
            call["values"][name] = value
        else:
            call["others"][name] = type(value).__name__
    if len(_calls) < DISTINCT:
        _calls.setdefault(json.dumps(call, sort_keys=True), call)
