"""Runs a function once, in a process of its own: where it is defined, what it takes, and which kernels it launches.

Run as `python -m tilewright.attach.probe REQUEST OUT`: a request as JSON, and the file that the answer goes to. CUDA is
the interpreter's stand-in, which lists launches and runs none.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tilewright.evaluation import modelling
from tilewright.evaluation.tensors import tensors_of
from tilewright.interpreter import host

SMALL = 96
LARGE = 2**26
"""Elements of all tensors: with more, the function is first run on smaller ones."""
ARCH = "sm_90"
Shapes = dict[str, list[int]]
PLAIN = (int, float, bool, str)
NAMED = {kind.__name__ for kind in PLAIN}
WRAP = (
    "arguments are tensors, numbers, words and None; write a function that takes such alone (a module's weights as "
    "tensors, the parts of a list one by one) and calls this one, commit it, and name that"
)


class Unusable(Exception):
    """The function cannot be made a task as asked; the text says what to do."""


def main(request: dict[str, Any]) -> dict[str, Any]:
    """What is known of the function that is asked for. Raises `Unusable`."""
    modelling.prepare(ARCH)
    if importlib.util.find_spec("triton"):
        modelling.prepare_triton(ARCH, running=False)
    function, path = _imported(request["entry"])
    if type(function).__module__.partition(".")[0] in ("cuda", "triton"):
        raise Unusable("that is a kernel: name the function that launches it")
    name = getattr(inspect.unwrap(function), "__name__", "") or request["entry"].partition(":")[2]
    module = getattr(function, "__module__", "")
    itself = getattr(sys.modules.get(module), name, None) is function
    reference, reference_path = _imported(request["reference"]) if request["reference"] else (function, path)
    answer: dict[str, Any] = {"path": str(path), "reference_path": str(reference_path)}
    answer |= {"entry": f"{module}:{name}" if itself else request["entry"]}
    if request["adapter"]:
        function, _ = _imported(request["adapter"])
    arguments, dtypes = request["arguments"], request["dtypes"]
    shapes: Shapes = request["shapes"]
    if not dtypes:
        tensors = _tensors(function, arguments, shapes)
        dtypes, shapes = dict.fromkeys(tensors, request["dtype"]), _shapes(tensors, shapes)
        if not request["reference"] and (kernels := _kernels(function, shapes, dtypes, arguments)):
            return answer | {"kernels": kernels}
        answer["narrow"] = _narrow(reference, shapes, arguments)
    elif not dtypes.keys() <= shapes.keys():
        raise Unusable("a shape is missing for a tensor that has a dtype")
    answer |= {"shapes": shapes, "dtypes": dtypes}
    return answer | {"kernels": _kernels(function, shapes, dtypes, arguments)}


def _imported(entry: str) -> tuple[Callable[..., Any], Path]:
    module_name, _, name = entry.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        built = isinstance(error, ImportError) and (
            ". Only committed files are there: install what a build makes, such as an extension module, as a package "
            "of its own, or commit it"
        )
        raise Unusable(f"importing {module_name} failed: {type(error).__name__}: {error}{built or ''}") from None
    function = getattr(module, name, None)
    if not callable(function):
        there = [name for name, value in vars(module).items() if inspect.isfunction(value) and not name.startswith("_")]
        raise Unusable(f"{module_name} has no function {name}; it has {', '.join(there) or 'none'}")
    try:
        path = inspect.getfile(inspect.unwrap(function))
    except TypeError:  # an object that can be called, such as an instance or a built-in function
        path = getattr(sys.modules.get(type(function).__module__), "__file__", None) or str(module.__file__)
    return function, Path(path).resolve()


def _tensors(function: Callable[..., Any], given: dict[str, Any], shapes: Shapes) -> list[str]:
    """The parameters that take tensors: those that are given a shape, or have no default."""
    tensors = []
    for parameter in inspect.signature(function).parameters.values():
        annotation = str(parameter.annotation)
        if parameter.name in given or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.name not in shapes and parameter.default is not parameter.empty:
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise Unusable(f"parameter {parameter.name} is positional only; arguments are passed by name: wrap it")
        if parameter.name not in shapes and parameter.annotation is not parameter.empty and "Tensor" not in annotation:
            plain = parameter.annotation in PLAIN or annotation in NAMED
            how = f"give it as --arg {parameter.name}=…" if plain else WRAP
            raise Unusable(f"parameter {parameter.name} is {annotation}, without a default: {how}")
        tensors.append(parameter.name)
    if not tensors:
        raise Unusable("the function takes no tensor: there is nothing to draw")
    return tensors


def _shapes(tensors: list[str], given: Shapes) -> Shapes:
    """The shape of each tensor."""
    if unknown := given.keys() - {*tensors, ""}:
        raise Unusable(f"--shape {min(unknown)}=…: the tensors are {', '.join(tensors)}")
    if "" not in given and (missing := [name for name in tensors if name not in given]):
        like = next(iter(given.values()))[-1] if given else "4096x8192"
        raise Unusable(f"--shape {missing[0]}=<its shape> is missing, as in --shape {missing[0]}={like}")
    return {name: given[name if name in given else ""] for name in tensors}


def _narrow(reference: Callable[..., Any], shapes: Shapes, arguments: dict[str, Any]) -> str:
    """The dtype of an output of the reference in float64, if that is another; else nothing."""
    small = {name: [min(size, SMALL) for size in shape] for name, shape in shapes.items()}
    arguments = _tied(arguments, small)
    try:
        result = reference(**_drawn(small, dict.fromkeys(shapes, "float64")), **arguments)
        if result is None:
            raise TypeError(
                "it returns nothing: for one that writes into its arguments write task.toml by hand, with outputs"
            )
        outputs = tensors_of(result)
    except Exception as error:
        raise Unusable(
            f"in float64 on the CPU, with tensors {', '.join(shapes)} of sizes cut to {SMALL}, it fails: "
            f"{type(error).__name__}: {error}. Take the inputs from your tests (--test FILE). Or give every tensor's "
            "shape, and the dtype of indices and masks (--shape x=4096x8192 --shape labels=4096:int64), other "
            "arguments (--arg eps=1e-6), or a reference in plain torch (--reference module:function)"
        ) from None
    narrow = [str(one.dtype) for one in outputs if one.is_floating_point() and one.dtype != torch.float64]
    return narrow[0].removeprefix("torch.") if narrow else ""


def _tied(arguments: dict[str, Any], shapes: Shapes) -> dict[str, Any]:
    """The arguments, those that are a dimension of a tensor with its size."""
    found = dict(arguments)
    for name, value in arguments.items():
        if isinstance(value, dict):
            tensor, axis = value["tensor"], value["axis"]
            if axis >= len(shapes.get(tensor, [])):
                known = ", ".join(f"{one} with {len(shape)} dimensions" for one, shape in shapes.items())
                raise Unusable(f"--arg {name}={tensor}.{axis}: the tensors are {known}, counted from 0")
            found[name] = shapes[tensor][axis]
    return found


def _drawn(shapes: Shapes, dtypes: dict[str, str]) -> dict[str, Any]:
    torch.manual_seed(0)
    drawn = {}
    for name, shape in shapes.items():
        dtype = getattr(torch, dtypes[name])
        drawn[name] = torch.randn(shape).to(dtype) if dtype.is_floating_point else torch.zeros(shape, dtype=dtype)
    return drawn


def _kernels(
    function: Callable[..., Any], shapes: Shapes, dtypes: dict[str, str], arguments: dict[str, Any]
) -> list[list[str]]:
    """The file and the frontend of each kernel that one call launches, in this order."""
    elements = sum(torch.Size(shape).numel() for shape in shapes.values())
    cuts = [max(map(max, filter(None, shapes.values())), default=1)] * (elements <= LARGE)
    for cut in (*cuts, SMALL, 128, 64, 256, 32, 512):
        some = {name: [min(size, cut) for size in shape] for name, shape in shapes.items()}
        tensors, given = _drawn(some, dtypes), _tied(arguments, some)
        with host.running(host.Mode.CAPTURE) as launches, _triton_launches() as noted:
            with contextlib.suppress(Exception):
                function(**tensors, **given)
                break
            if launches or noted:
                break
    codes = [(launch.kernel._pyfunc.__code__, "cutile") for launch in launches]
    codes += [(launch.source.fn.fn.__code__, "triton") for launch in noted]
    return [list(kernel) for kernel in dict.fromkeys((str(Path(c.co_filename).resolve()), name) for c, name in codes)]


@contextlib.contextmanager
def _triton_launches() -> Any:
    if "triton" not in sys.modules:
        yield []
        return
    from tilewright.interpreter import tritonhost

    with tritonhost.captured() as launches:
        yield launches


if __name__ == "__main__":
    try:
        answer = main(json.loads(sys.argv[1]))
    except Unusable as error:
        answer = {"unusable": str(error)}
    Path(sys.argv[2]).write_text(json.dumps(answer), encoding="utf-8")
