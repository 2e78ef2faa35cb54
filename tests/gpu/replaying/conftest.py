"""What the tests of capture and replay share."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tilewright.bundled import examples
from tilewright.programs.digests import widened
from tilewright.programs.model import Program
from tilewright.referee.replayer import Replayer

HERE = Path(__file__).parent
EXAMPLES = {
    "rmsnorm": "01_rmsnorm_occupancy_only",
    "matmul": "02_matmul_full_search",
    "softmax": "05_softmax_triton",
}


@lru_cache
def module_at(path: Path) -> ModuleType:
    """A file as a module under its own name, as if its folder were on the path. One folder's `fixed_launch` takes the
    place of another's."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = made
    spec.loader.exec_module(made)
    return made


def function(name: str) -> Callable[..., Any]:
    """An entry point by its name."""
    if name not in EXAMPLES:
        return getattr(module_at(HERE / "entry_points.py"), name)  # type: ignore[no-any-return]
    made = module_at(examples() / EXAMPLES[name] / "fixed_launch.py")
    sys.modules["fixed_launch"] = made
    return getattr(made, name)  # type: ignore[no-any-return]


def inputs(name: str, rows: int = 0) -> list[Any]:
    """Arguments of an entry point, on the CPU; `rows` for a size of one's own."""
    import torch

    source = torch.Generator().manual_seed(7)

    def draw(*shape: int, dtype: Any = torch.bfloat16) -> Any:
        return torch.randn(*shape, generator=source, dtype=torch.float32).to(dtype)

    match name:
        case "rmsnorm":
            columns = 1024 if 0 < rows < 1000 else 8192
            return [draw(rows or 16384, columns), draw(columns), 1e-6]
        case "matmul" | "cublas":
            return [draw(rows or 4096, rows or 4096), draw(rows or 4096, rows or 4096)]
        case "softmax" | "compiled":
            return [draw(rows or 16384, 4096)]
        case "attention":
            return [draw(4, 16, 2048, 128, dtype=torch.float16) for _ in range(3)]
        case "packed":
            return [draw(4096, 1024), draw(1024, 1024)]
        case "streams":
            return [draw(8192, 4096), draw(8192, 4096)]
        case "backward":
            return [draw(2048, 4096)]
    return [draw(256, 512, dtype=torch.float32)]


CONSTANT = {"packed": ("w",)}
"""Inputs that an entry point may keep something of."""


def differing(replayer: Replayer, program: Program, name: str, rows: int = 0) -> list[str]:
    """The outputs of a program that differ, in a bit, in their shape or in their number, from what its entry point
    gives in this process, with torch's own allocator, on inputs that the capture never saw."""
    import torch

    from tilewright.evaluation.tensors import raw_bytes
    from tilewright.referee.arguments import content

    source, first = torch.Generator().manual_seed(99), inputs(name, rows)
    names = [*inspect.signature(function(name)).parameters]
    drawn = [
        torch.randn(one.shape, generator=source).to(one.dtype)
        if isinstance(one, torch.Tensor) and argument not in CONSTANT.get(name, ())
        else one
        for argument, one in zip(names, first, strict=False)
    ]
    replayer.load([program], [[content(one)[0] for one in drawn if isinstance(one, torch.Tensor)]])
    _, copy = replayer.alone(0, 0, 3, 20.0)
    outputs = [*map(bytes, copy.outputs)]
    given = function(name)(*(one.cuda() if isinstance(one, torch.Tensor) else one for one in drawn))
    torch.cuda.synchronize()
    right = list(given) if isinstance(given, tuple | list) else [given]
    if len(right) != len(outputs):
        return [f"all: {len(outputs)} of {len(right)}"]
    wrong = []
    for tensor, raw, one in zip(program.layout.outputs, outputs, right, strict=True):
        start, _ = widened(tensor.at, tensor.size)
        data = raw[tensor.at - start :][: tensor.size]
        if [*one.shape] != tensor.spec.shape or data != raw_bytes(one).cpu().numpy().tobytes():
            wrong.append(tensor.name)
    return wrong


@pytest.fixture(scope="session")
def replayer() -> Iterator[Replayer]:
    with Replayer() as made:
        yield made
