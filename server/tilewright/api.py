"""Device programs from Python: capture a call, compare two programs.

import torch
import tilewright

from kernels import softmax, softmax_online

x = torch.randn(16384, 4096, dtype=torch.bfloat16)
one, other = tilewright.capture(softmax, x), tilewright.capture(softmax_online, x)
print(tilewright.compare_programs(one, other))
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.errors import UsageError
from tilewright.evaluation.statistics import ERROR_PROBABILITY
from tilewright.isolation.fork_server import ForkServer, capture_server
from tilewright.programs.model import Program
from tilewright.referee.capture_worker import Entry
from tilewright.referee.captures import Arguments, arguments_of, capture_twice
from tilewright.referee.compare import ComparisonResult, compare
from tilewright.referee.replayer import Replayer, exclusive_gpu
from tilewright.wire.channel import Sent, as_bytes
from tilewright.wire.tensors import TensorSpec

if TYPE_CHECKING:
    import torch

LIMIT_S = 300.0
"""For an import, or for a first call, which compiles and tunes."""


def capture(
    function: Callable[..., Any],
    *arguments: Any,
    constant: Collection[str] = (),
    limit_s: float = LIMIT_S,
    **named: Any,
) -> Program:
    """Return the device program of `function(*arguments, **named)`: what this call launches on the GPU.

    The function must return its output tensors, and must stand at the top level of a module: two confined processes
    import and call it. It gets its tensors on the GPU, wherever they lie now. In the second process, the elements of
    each tensor are in another order. `constant` names the arguments whose elements keep their order, such as weights
    that the function packs once. `limit_s`: seconds for an import, or for a first call.

    Raises `UsageError` if the function cannot be imported, `tilewright.gpu.lease.GpuBusy` if another process keeps the
    GPU, and RuntimeError if no GPU can be used. `tilewright.referee.capture_worker` has two more: `EntryFailed` if the
    function fails, and `InProcess` if its call cannot be captured.
    """
    folder, module = _place(function)
    bound = inspect.signature(function).bind(*arguments, **named)
    bound.apply_defaults()
    label = f"{module}:{function.__qualname__}"
    entry = Entry(folder, module, function.__qualname__, "torch", label=label)  # all languages are watched
    if unknown := set(constant) - set(bound.arguments):
        raise UsageError(f"{label} has no argument {sorted(unknown)[0]!r}, which `constant` names")
    draws = _draw(bound.arguments, bound.arguments), _draw(bound.arguments, constant)
    names = [one.name for one in draws[0].described if one.tensor is not None]
    examples = dict(zip(names, map(as_bytes, draws[0].tensors), strict=True))
    kept = [name for name in names if name in constant]
    with exclusive_gpu():
        return capture_twice(_capture_server(), entry, draws, limit_s, examples, kept)


def compare_programs(first: Program, second: Program, error_probability: float = ERROR_PROBABILITY) -> ComparisonResult:
    """Compare the second program with the first: replay both in turns on this machine's GPU until more rounds would
    change nothing, at most 40.

    `error_probability`: probability that the interval of the speedup misses the true speedup. Raises `Fault` of
    `tilewright.referee.replayer` if a program cannot be replayed, and `ReplayerGone` if there is no GPU. Raises
    `tilewright.gpu.lease.GpuBusy` if another process keeps the GPU.
    """
    with exclusive_gpu(), Replayer() as replayer:
        return compare(replayer, first, second, error_probability=error_probability)


@functools.cache
def _capture_server() -> ForkServer:
    """One for all captures of this process, with which it ends."""
    return capture_server()


def _place(function: Callable[..., Any]) -> tuple[Path, str]:
    """The folder that a function's module is imported from, and the module's name there."""
    name, qualified = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    module = sys.modules.get(name or "")
    file = getattr(module, "__file__", None)
    if module is None or file is None or "<" in qualified or "." in qualified:
        raise UsageError(f"{function!r} is no function of a module; write it in a file, at the file's top level")
    path = Path(file).resolve()
    if name == "__main__":
        return path.parent, path.stem
    parts = str(name).split(".")
    return path.parents[len(parts) - (path.stem != "__init__")], str(name)


def _draw(values: Mapping[str, Any], constant: Collection[str]) -> Arguments:
    return arguments_of(values, lambda name, tensor: _content(tensor, shuffled=name not in constant))


def _content(tensor: torch.Tensor, shuffled: bool) -> tuple[Sent, TensorSpec]:
    import torch

    from tilewright.referee.arguments import content

    found = tensor.detach().cpu()
    if shuffled and found.numel():
        mixed = torch.empty_strided(found.shape, found.stride(), dtype=found.dtype)
        found = mixed.copy_(found.reshape(-1).roll(found.numel() // 3 + 1).reshape(found.shape))
    return content(found)
