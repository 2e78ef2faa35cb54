"""A pytest plugin that notes what a function is called with, for a run of its own: `-p tilewright.attach.capture`.

It goes by the function's name wherever modules hold it. It does not see a call through a registry that took the
function earlier.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import json
import os
import sys
from pathlib import Path
from typing import Any

from tilewright.attach.inputs import Call, Tensor, layout_of

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
    """Keep a call: its tensors, its numbers and words, and the types of all else."""
    try:
        bound = signature.bind(*arguments, **named).arguments
    except TypeError:
        return  # the call fails by itself
    call, others = Call({}, {}), dict[str, str]()
    for name, value in bound.items():
        if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "shape"):
            call.tensors[name] = tensor_of(value)
        elif isinstance(value, int | float | str | bool | None):
            call.values[name] = value
        else:
            others[name] = type(value).__name__
    shape = {name: (tensor.shape, tensor.dtype, tensor.layout) for name, tensor in call.tensors.items()}
    if len(_calls) < DISTINCT:
        call.test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        kept = dataclasses.asdict(call) | {"others": others}
        _calls.setdefault(repr((shape, sorted(call.values.items()), others)), kept)


def tensor_of(value: Any) -> Tensor:
    """What is kept of a tensor."""
    shape, strides = list(value.shape), list(value.stride())
    expanded = [axis for axis, stride in enumerate(strides) if stride == 0 and shape[axis] > 1]
    layout = "" if expanded else layout_of(shape, strides)
    return Tensor(shape, str(value.dtype).removeprefix("torch."), layout, expanded, _values(value))


def _values(value: Any) -> dict[str, Any]:
    """What a tensor's values are like: enough to draw such again, or why they cannot be drawn."""
    import torch

    if not value.numel():
        return {}
    if value.dtype.is_complex:
        return {"fill": "complex numbers"}
    if value.dtype is torch.bool:
        return {"share": value.float().mean().item()}
    if value.dtype.is_floating_point:
        wide = value.detach().to(torch.float32)
        return {"least": wide.min().item(), "most": wide.max().item()}
    numbers = value.detach().to(torch.int64).flatten().cpu()
    low, high = int(numbers.min()), int(numbers.max())
    if value.ndim == 1 and len(numbers) > 2 and low < high and bool((numbers.diff() >= 0).all()):
        if numbers.equal(torch.arange(len(numbers))):
            return {"arange": True}
        return {"fill": f"the values rise from {low} to {high} in the tests"}
    rest = numbers[numbers != low]
    if low < 0 <= int(rest.min() if len(rest) else 0) and len(rest):
        share = 1 - len(rest) / len(numbers)
        return {"low": 0, "high": high, "special": low, "special_share": share}
    return {"low": low, "high": high}
