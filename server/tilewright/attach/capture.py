"""A pytest plugin that notes what a function is called with, for a run of its own: `-p tilewright.attach.capture`.

It takes the function's place wherever that is held: by modules, registries and closures. The first of a test's
parameter sets that passes runs to its end. The others, and tests that measure, end once they have made as many calls:
tests mostly compile and compare, which says nothing about what they call.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import dis
import functools
import gc
import importlib
import inspect
import json
import math
import zlib
from pathlib import Path
from types import CellType, CodeType
from typing import Any

import pytest

from tilewright.attach.finding import MEASURES
from tilewright.attach.inputs import Call, Tensor, layout_of

DISTINCT = 200
RECORDED_BYTES = 2**20
"""Of a tensor of integers, up to which its values are kept."""
RECORDED_TEXT = 4 * 2**20
"""Characters that the values of all calls take at most; a call with more is not noted."""
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
COPIED_BYTES = 2**31
"""Of a call's tensors, up to which it is seen which of them the call changes."""
TRIED = 4
"""Configs of a search of cuTile's of which the first that runs is taken: a test needs no fast one."""
_calls: dict[str, dict[str, Any]] = {}
_within: list[str] = []
_running: list[str] = []
_made = [0]
"""Calls that the running test has made so far."""
_usual: dict[str, int] = {}
"""Calls that a test function made with its first parameters."""


def pytest_addoption(parser: Any) -> None:
    """The function, as module:function, or all of a module, as module:, and the file that calls are written to."""
    parser.addoption("--tilewright-calls-of", required=True)
    parser.addoption("--tilewright-calls-into", required=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_cmdline_main(config: Any) -> Any:
    """Let all tests run in this process, whatever pytest-xdist was told."""
    if getattr(config.option, "numprocesses", None):
        config.option.numprocesses = 0
    yield


def pytest_collection_finish(session: Any) -> None:
    """Put wrappers in the place of the function, or of all functions of the module, and of cuTile's search."""
    module_name, _, wanted = session.config.getoption("--tilewright-calls-of").partition(":")
    module = importlib.import_module(module_name)
    hidden = called_by_kernels(module)
    functions = [name for name, value in vars(module).items() if inspect.isfunction(value)]
    public = [name for name in functions if not name.startswith("_") and name not in hidden]
    with contextlib.suppress(ImportError):
        from cuda.tile.tune import exhaustive_search

        replace(exhaustive_search, brief(exhaustive_search))
    if wanted and not hasattr(module, wanted):
        raise pytest.UsageError(f"{module_name} has no function {wanted}; it has {', '.join(public) or 'none'}")
    for name in [wanted] if wanted else [one for one in public if getattr(module, one).__module__ == module_name]:
        original = getattr(module, name)
        replace(original, noting(name, original))


def pytest_runtest_call(item: Any) -> None:
    """Note which test runs: neither its fixtures nor what comes after it."""
    _running[:], _made[0] = [item.nodeid], 0


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Any:
    """Note how many calls a test function makes, by a run that passed."""
    report = (yield).get_result()
    if call.when == "call":
        if report.passed and _made[0]:
            _usual.setdefault(item.nodeid.partition("[")[0], _made[0])
        _running.clear()


def called_by_kernels(module: Any) -> set[str]:
    """The functions of a module that its cuTile kernels call, which are compiled from their source."""
    sources = [one._pyfunc for one in vars(module).values() if hasattr(type(one), "replace_hints")]
    left = [(source.__code__, source.__globals__) for source in sources if inspect.isfunction(source)]
    found: set[str] = set()
    while left:
        code, names = left.pop()
        left += [(inner, names) for inner in code.co_consts if isinstance(inner, CodeType)]
        for name in {one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL"} - found:
            if inspect.isfunction(function := names.get(name)):
                found.add(name)
                left.append((function.__code__, function.__globals__))
    return found


def brief(search: Any) -> Any:
    """A search of cuTile's that takes the first config that runs."""

    @functools.wraps(search)
    def first(search_space: Any, *arguments: Any, **options: Any) -> Any:
        space = [*search_space]
        for one in space[:TRIED]:
            with contextlib.suppress(Exception):
                return search([one], *arguments, **options)
        return search(space, *arguments, **options)

    return first


def noting(name: str, original: Any) -> Any:
    """A function that notes its calls and makes them. Within a call, no other is noted."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def noted(*arguments: Any, **named: Any) -> Any:
        if _within:
            return original(*arguments, **named)
        test = _running[-1] if _running else ""
        kept, live = note(signature, arguments, named, test, name)
        _made[0] += 1
        plain = test.partition("[")[0]
        if test and (MEASURES.search(plain.rpartition("::")[2]) or _made[0] >= _usual.get(plain, math.inf)):
            pytest.skip("its calls are noted")
        _within.append(name)
        try:
            before = copies_of(live)
            result = original(*arguments, **named)
            if before is not None and (after := copies_of(live)) is not None:
                found = written(before, after, live, result)
                kept["written"] = [name for name in live if name in (*(kept.get("written") or ()), *found)]
            return result
        finally:
            _within.pop()

    return noted


def copies_of(live: dict[str, Any]) -> dict[str, Any] | None:
    """The bytes of a call's tensors; None if there is no room."""
    import torch

    if sum(tensor.numel() * tensor.element_size() for tensor in live.values()) > COPIED_BYTES:
        return None
    try:
        copies = {name: one.detach().clone(memory_format=torch.contiguous_format) for name, one in live.items()}
        return {name: copy.reshape(-1).view(torch.uint8) for name, copy in copies.items()}
    except RuntimeError:  # no memory is left, or the tensor is of no common kind
        return None


def written(before: dict[str, Any], after: dict[str, Any], live: dict[str, Any], result: Any) -> list[str]:
    """The tensors that a call changed, by their bytes before and after, if all that it returned lies in these."""
    import torch

    changed = [name for name in live if not torch.equal(before[name], after[name])]
    places = {live[name].untyped_storage().data_ptr() for name in changed}
    returned = [*result] if isinstance(result, list | tuple) else [result]
    inside = all(
        one is None or (isinstance(one, torch.Tensor) and one.untyped_storage().data_ptr() in places)
        for one in returned
    )
    return changed if inside else []


def replace(original: Any, wrapper: Any) -> None:
    """Put a wrapper in a function's place in all dicts, lists and closures that hold it, but for its own."""
    own = {id(vars(wrapper)), *map(id, wrapper.__closure__ or ())}
    for holder in gc.get_referrers(original):  # no closure of this function's own may be among them
        if id(holder) in own:
            continue
        if isinstance(holder, CellType):
            holder.cell_contents = wrapper
        elif isinstance(holder, dict | list):
            for key, value in [*(holder.items() if isinstance(holder, dict) else enumerate(holder))]:
                if value is original:
                    holder[key] = wrapper


def pytest_sessionfinish(session: Any) -> None:
    """Write the distinct calls, oldest first."""
    into = Path(session.config.getoption("--tilewright-calls-into"))
    into.write_text(json.dumps(list(_calls.values())), encoding="utf-8")


def note(
    signature: inspect.Signature, arguments: tuple[Any, ...], named: dict[str, Any], test: str = "", function: str = ""
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keep a call: its tensors, its numbers and words, how lists and tuples are made of these, and the types of all
    else. Return what is kept, and its tensors themselves."""
    call, live = Call({}, {}, test, function=function), dict[str, Any]()
    try:
        bound = signature.bind(*arguments, **named).arguments
    except TypeError:  # the call fails by itself
        return {}, live
    further = next((name for name, one in signature.parameters.items() if one.kind is one.VAR_KEYWORD), "")
    for name, value in (bound | bound.pop(further, {})).items():
        text = _taken(call, live, name, value)
        if not text or (name in signature.parameters and signature.parameters[name].kind not in _BY_NAME):
            call.others[name] = type(value).__name__
        elif text != name:
            call.packed[name] = text
    shape = {name: (tensor.shape, tensor.dtype, tensor.layout) for name, tensor in call.tensors.items()}
    length = sum(len(tensor["content"]) for known in _calls.values() for tensor in known["tensors"].values())
    length += sum(len(tensor.content) for tensor in call.tensors.values())
    if len(_calls) < DISTINCT and length <= RECORDED_TEXT:
        key = repr((function, shape, sorted(call.values.items()), call.packed, call.others))
        return _calls.setdefault(key, dataclasses.asdict(call)), live
    return {}, live


def _taken(call: Call, live: dict[str, Any], name: str, value: Any) -> str:
    """Keep an argument's pieces under its name, and names made of it. Gives the code that puts it together; empty for
    what is no tensor, number or word, and not made of these."""
    if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "shape"):
        call.tensors[name], live[name] = tensor_of(value), value
        return name
    if isinstance(value, int | float | str | bool | None):
        call.values[name] = value
        return name
    if isinstance(value, list | tuple):
        pieces = [_taken(call, live, f"{name}_{number}", piece) for number, piece in enumerate(value)]
        inside = ", ".join(pieces) + "," * (len(pieces) == 1)
        return "" if not all(pieces) else f"[{inside}]" if isinstance(value, list) else f"({inside})"
    if type(value).__module__ == "torch" and type(value).__name__ in ("dtype", "device"):
        call.values[name] = str(value).removeprefix("torch.")
        return f"getattr(torch, {name})" if type(value).__name__ == "dtype" else f"torch.device({name})"
    return ""


def tensor_of(value: Any) -> Tensor:
    """What is kept of a tensor."""
    shape, strides = list(value.shape), list(value.stride())
    expanded = [axis for axis, stride in enumerate(strides) if stride == 0 and shape[axis] > 1]
    layout = "" if expanded else layout_of(shape, strides)
    for axis in expanded:
        value = value.narrow(axis, 0, 1)
    return Tensor(shape, str(value.dtype).removeprefix("torch."), layout, expanded, _values(value), _content(value))


def _content(value: Any) -> str:
    """The integers or bools of a tensor, compressed, as text; empty for others, and for many."""
    if value.dtype.is_floating_point or value.dtype.is_complex or value.numel() * value.element_size() > RECORDED_BYTES:
        return ""
    return base64.b64encode(zlib.compress(value.detach().cpu().contiguous().numpy().tobytes())).decode()


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
