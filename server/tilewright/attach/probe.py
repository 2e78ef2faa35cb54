"""Tries a function out in a process of its own: what it takes, and whether it runs in float64 and on odd sizes.

Run as `python -m tilewright.attach.probe REQUEST OUT`: a request as JSON, and the file that the answer goes to.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

NAMES = ("N", "M", "K", "B", "H", "D", "E", "F")
"""Of dimensions, from the last one of the first tensor on."""
SMALL = 96
Shapes = dict[str, list[str]]
PLAIN = (int, float, bool, str)
NAMED = {one.__name__ for one in PLAIN}
WRAP = (
    "arguments are tensors, numbers, words and None; write a function that takes such alone (a module's weights as "
    "tensors, the parts of a list one by one) and calls this one, commit it, and name that"
)


class Unusable(Exception):
    """The function cannot be made a task as asked; the text says what to do."""


def main(request: dict[str, Any]) -> dict[str, Any]:
    """What is known of the function that is asked for. Raises `Unusable`."""
    function, path = _imported(request["entry"])
    if request.get("locate"):
        name = getattr(inspect.unwrap(function), "__name__", "") or request["entry"].partition(":")[2]
        itself = getattr(sys.modules.get(getattr(function, "__module__", "")), name, None) is function
        return {"path": str(path), "function": name, "itself": itself}
    reference, reference_path = _imported(request["reference"]) if request["reference"] else (function, path)
    tensors = _tensors(function, request["arguments"], request["shapes"])
    shapes, sizes = _shapes(reference, tensors, request)
    small = {name: min(size, SMALL) for name, size in sizes.items()}
    arguments = request["arguments"]
    outputs = _call(reference, shapes, small, torch.float64, arguments)
    narrow = [str(one.dtype) for one in outputs if one.dtype.is_floating_point and one.dtype != torch.float64]
    return {
        "path": str(path),
        "reference_path": str(reference_path),
        "shapes": shapes,
        "sizes": sizes,
        "last": shapes[tensors[0]][-1],
        "narrow": narrow[0].removeprefix("torch.") if narrow else "",
    }


def _imported(entry: str) -> tuple[Callable[..., Any], Path]:
    module_name, _, name = entry.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise Unusable(f"importing {module_name} failed: {type(error).__name__}: {error}") from None
    function = getattr(module, name, None)
    if not callable(function):
        there = [name for name, value in vars(module).items() if inspect.isfunction(value) and not name.startswith("_")]
        raise Unusable(f"{module_name} has no function {name}; it has {', '.join(there) or 'none'}")
    try:
        path = inspect.getfile(inspect.unwrap(function))
    except TypeError:  # an object that can be called, such as an instance or a built-in function
        path = getattr(sys.modules.get(type(function).__module__), "__file__", None) or str(module.__file__)
    return function, Path(path).resolve()


def _tensors(function: Callable[..., Any], given: dict[str, Any], shapes: dict[str, Any]) -> list[str]:
    """The parameters that take tensors: given a shape, annotated so, or with neither annotation nor default."""
    found = []
    for parameter in inspect.signature(function).parameters.values():
        said = str(parameter.annotation)
        if parameter.name in given or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        optional = parameter.default is not parameter.empty
        if parameter.name not in shapes and optional and not ("Tensor" in said and parameter.default is not None):
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise Unusable(f"parameter {parameter.name} is positional only; arguments are passed by name: wrap it")
        if parameter.name not in shapes and parameter.annotation is not parameter.empty and "Tensor" not in said:
            how = f"give it as --arg {parameter.name}=…" if parameter.annotation in PLAIN or said in NAMED else WRAP
            raise Unusable(f"parameter {parameter.name} is {said}, without a default: {how}")
        found.append(parameter.name)
    if not found:
        raise Unusable("the function takes no tensor: there is nothing to draw")
    return found


def _shapes(
    reference: Callable[..., Any], tensors: list[str], request: dict[str, Any]
) -> tuple[Shapes, dict[str, int]]:
    """The dimensions of each tensor by name, and their sizes. A shape for all is also tried with only its last
    dimension for all tensors but the first, as weights have it."""
    given: dict[str, list[int]] = request["shapes"]
    if unknown := given.keys() - {*tensors, ""}:
        raise Unusable(f"--shape {min(unknown)}=…: the tensors are {', '.join(tensors)}")
    if "" not in given and (missing := [name for name in tensors if name not in given]):
        like = next(iter(given.values()))[-1] if given else "4096x8192"
        raise Unusable(f"--shape {missing[0]}=<its shape> is missing, as in --shape {missing[0]}={like}")
    common = given.get("", [])
    tries = [{name: given.get(name, common) for name in tensors}]
    tries.append({name: given.get(name, common if name == tensors[0] else common[-1:]) for name in tensors})
    why = ""
    for one in tries:
        shapes, sizes = _named(one)
        small = {name: min(size, SMALL) for name, size in sizes.items()}
        try:
            _call(reference, shapes, small, torch.float64, request["arguments"])
            return shapes, sizes
        except Exception as error:
            why = why or f"{type(error).__name__}: {error}"
    raise Unusable(
        f"in float64 on the CPU, with tensors {', '.join(tensors)} of sizes cut to {SMALL}, it fails: {why}. "
        "Give every tensor's shape (--shape x=4096x8192 --shape weight=8192), other arguments (--arg eps=1e-6), or a "
        "reference in plain torch (--reference module:function)"
    )


def _named(sizes: dict[str, list[int]]) -> tuple[Shapes, dict[str, int]]:
    """Names for dimensions: equal sizes of different tensors are one dimension."""
    known: dict[str, int] = {}
    shapes: Shapes = {}
    for tensor, dims in sizes.items():
        own: list[str] = []
        for size in reversed(dims):
            name = next((name for name, there in known.items() if there == size and name not in own), "")
            if not name:
                name = NAMES[len(known)] if len(known) < len(NAMES) else f"D{len(known)}"
                known[name] = size
            own.insert(0, name)
        shapes[tensor] = own
    return shapes, known


def _call(
    function: Callable[..., Any], shapes: Shapes, sizes: dict[str, int], dtype: torch.dtype, arguments: dict[str, Any]
) -> list[torch.Tensor]:
    torch.manual_seed(0)
    drawn = {name: torch.randn([sizes[dim] for dim in dims], dtype=dtype) for name, dims in shapes.items()}
    made = function(**drawn, **arguments)
    outputs = list(made) if isinstance(made, tuple | list) else [made]
    if made is None:
        raise TypeError(
            "it returns nothing: for one that writes into its arguments write task.toml by hand, with outputs"
        )
    if not outputs or not all(isinstance(one, torch.Tensor) for one in outputs):
        raise TypeError(f"it returns {type(made).__name__}, no tensors")
    return outputs


if __name__ == "__main__":
    try:
        answer = main(json.loads(sys.argv[1]))
    except Unusable as error:
        answer = {"unusable": str(error)}
    Path(sys.argv[2]).write_text(json.dumps(answer), encoding="utf-8")
