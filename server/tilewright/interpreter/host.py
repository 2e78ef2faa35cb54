"""Stands in for the GPU's host side, so that a kernel's wrapper runs unmodified where there is no GPU.

`install` is called once in a worker process, before the candidate is imported: launches then go to the
interpreter, CUDA devices, streams and events become the CPU's, and device properties are those of a chosen model.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import SimpleNamespace
from typing import Any

import cuda.tile as ct
import cuda.tile.tune
import torch
from cuda.tile._compile import compile_tile
from torch.utils._pytree import tree_leaves

from tilewright.compiler.signature import names_of, signature_of
from tilewright.gpu.specs import DeviceSpec
from tilewright.interpreter.flow import Execution
from tilewright.interpreter.hostops import paused
from tilewright.interpreter.machine import BlockIndex, Counts
from tilewright.interpreter.memory import flat_buffer
from tilewright.interpreter.numerics import UnsupportedOperation, held_dtype
from tilewright.interpreter.races import Races
from tilewright.interpreter.torchcuda import CudaOnCpu, stand_in
from tilewright.interpreter.undetermined import Undetermined
from tilewright.interpreter.unshown import launched
from tilewright.interpreter.values import Pointer

SAMPLED_BLOCKS = 34
_STEPS = (1, 13, 25)
"""How far along each axis the next part lies: all prime to the number of parts."""


class Mode(StrEnum):
    """What a launch does: run every block, run a few (for the model), or none (to see what is launched)."""

    RUN = "run"
    SAMPLE = "sample"
    CAPTURE = "capture"


@dataclass
class Launch:
    """One launch that the host code made: the kernel with its hints, its signature, grid and work.

    `tensor_bytes` gives the size of each tensor argument's storage by the storage's address, `names` its parameter.
    """

    kernel: Any
    signature: Any
    grid: BlockIndex
    tensor_bytes: dict[int, int]
    names: dict[int, str] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)

    @property
    def name(self) -> str:
        return str(self.kernel._pyfunc.__name__)

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    def dram_bytes(self) -> float:
        """Bytes that reach DRAM if each tensor's are read at most once and written at most once."""
        scale = self.blocks / max(self.counts.blocks, 1)
        return sum(
            min(moved * scale, self.tensor_bytes.get(address, moved * scale))
            for counter in (self.counts.loaded, self.counts.stored)
            for address, moved in counter.items()
        )


@dataclass
class _Host:
    device: DeviceSpec
    mode: Mode = Mode.RUN
    launches: list[Launch] | None = None
    programs: dict[Any, Any] = field(default_factory=dict)
    undetermined: Undetermined = field(default_factory=Undetermined)
    races: Races | None = None


_host: _Host | None = None


def flatten_arguments(arguments: Sequence[Any], signature: Any) -> list[Any]:
    """Launch arguments as the final IR takes them: (pointer, shape..., strides...) for a tensor, the arrays and their
    number for a list, no constants; each the same for all blocks."""
    flat: list[Any] = []
    for argument, constraint in zip(arguments, signature.parameters, strict=True):
        kind = type(constraint).__name__
        if kind == "ConstantConstraint":
            continue
        if kind == "ArrayConstraint":
            flat += _flat_array(argument, constraint)
        elif kind == "ListConstraint":
            flat.append(tuple(tuple(_flat_array(item, constraint.element)) for item in argument))
            flat.append(torch.tensor([len(argument)], dtype=torch.int32))
        elif kind == "ScalarConstraint":
            flat.append(torch.tensor([argument], dtype=held_dtype(constraint.dtype)))
        elif kind == "TupleConstraint":
            flat += flatten_arguments(argument, SimpleNamespace(parameters=constraint.items))
        else:
            raise UnsupportedOperation(f"a kernel argument of kind {kind} is not interpreted by this version")
    return flat


def _flat_array(tensor: torch.Tensor, constraint: Any) -> list[Any]:
    buffer, offset = flat_buffer(tensor)
    index = held_dtype(constraint.index_dtype)
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    high = offset + last + 1 if tensor.numel() else offset
    pointer = Pointer(buffer, torch.tensor([offset]), constraint.dtype, offset, high)
    return [pointer, *(torch.tensor([size], dtype=index) for size in (*tensor.shape, *tensor.stride()))]


GRID_LIMITS = (2**31 - 1, 65535, 65535)
"""The driver's limits of a grid; cuTile's own is `_GRID_SIZE` along each axis."""
_GRID_SIZE = (1 << 24) - 1


def _grid_of(grid: Any) -> BlockIndex:
    """A grid's three sizes. Raises for a grid that no GPU takes, as cuTile does."""
    if not isinstance(grid, tuple) or not all(isinstance(size, int) for size in grid):
        raise TypeError("Grid must be a tuple of integers")
    limits = [min(limit, _GRID_SIZE) for limit in GRID_LIMITS]
    if len(grid) > 3 or any(not 0 <= size <= limit for size, limit in zip(grid, limits, strict=False)):
        raise ValueError(f"Grid must have at most 3 sizes, of at most {limits}, got {grid}")
    x, y, z = (*map(int, grid), 1, 1, 1)[:3]
    return x, y, z


def _launch(
    stream: Any, grid: Any, kernel: Any, kernel_args: Any, /, *, programmatic_dependent_launch: bool = False
) -> None:
    """`ct.launch` on the interpreter."""
    assert _host is not None
    with torch._C.DisableTorchFunction(), paused():
        if not isinstance(stream, int) and not {"cuda_stream", "__cuda_stream__"} & {*dir(stream)}:
            raise TypeError(f"Unsupported stream type '{type(stream).__name__}'.")
        x, y, z = _grid_of(grid)
        if not isinstance(kernel, ct.kernel) or not isinstance(kernel_args, tuple):
            raise TypeError("launch expects a tile kernel as the third argument and a tuple as the fourth")
        arguments = tuple(kernel_args)
        signature = signature_of(kernel, arguments)
        # Hints do not change what a kernel computes: variants of one kernel share their program.
        key = (kernel._pyfunc, signature.symbol)
        if key not in _host.programs:
            _host.programs[key] = compile_tile(
                kernel._annotated_function,
                [signature],
                sm_arch=_host.device.arch,
                return_final_ir=True,
                return_cubin=False,
            ).final_ir[0]
        tensors = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
        storages = [tensor.untyped_storage() for tensor in tensors]
        sizes_by_address = {storage.data_ptr(): storage.nbytes() for storage in storages}
        launch = Launch(kernel, signature, (x, y, z), sizes_by_address, names_of(kernel, arguments))
        if _host.mode is not Mode.CAPTURE and launch.blocks:
            launched.add(kernel._pyfunc.__code__)
            if _host.races is not None:
                _host.races.next_launch()
            flat = flatten_arguments(arguments, signature)
            machine = Execution(_host.programs[key], launch.grid, launch.names, _host.undetermined, _host.races)
            sampled = _host.mode is Mode.SAMPLE and launch.blocks > SAMPLED_BLOCKS
            try:
                launch.counts = machine.run(flat, sample(launch.grid) if sampled else None)
            finally:
                blocks = sorted(machine.printed)
                print("".join(text for number in blocks for text in machine.printed[number]), end="")
        if _host.launches is not None:
            _host.launches.append(launch)


def sample(grid: BlockIndex) -> torch.Tensor:
    """The numbers of the blocks that stand for a launch: all of a small one, else one in each of `SAMPLED_BLOCKS` equal
    parts of every axis, since blocks at an edge do less work."""
    total = math.prod(grid)
    if total <= 2 * SAMPLED_BLOCKS:
        return torch.arange(total)
    numbers = set()
    for point in range(SAMPLED_BLOCKS):
        x, y, z = (
            int((point * step % SAMPLED_BLOCKS + 0.5) * size / SAMPLED_BLOCKS)
            for step, size in zip(_STEPS, grid, strict=True)
        )
        numbers.add(x + grid[0] * (y + grid[1] * z))
    return torch.tensor(sorted(numbers))


def _made(tensor: torch.Tensor) -> None:
    """Host code got memory that nobody wrote."""
    assert _host is not None
    if _host.mode is Mode.RUN:
        _host.undetermined.fill(tensor)


def install(device: DeviceSpec) -> None:
    """Make this process a stand-in for one with `device`. Called once, before any candidate is imported."""
    global _host
    _host = _Host(device)
    stand_in(device)
    cuda.tile.launch = ct.launch = _launch
    search = cuda.tile.tune._tune
    search._benchmark = search.benchmark_with_timeout = lambda *_: 1.0  # no clock: all configs tie


def executes() -> bool:
    """Whether launches are run at all now."""
    return _host is None or _host.mode is not Mode.CAPTURE


@contextlib.contextmanager
def running(mode: Mode, undetermined: Undetermined | None = None, races: Races | None = None) -> Iterator[list[Launch]]:
    """Within it, host code sees a CUDA device, and its launches are made in `mode` and listed.
    `races` takes what launches can go on from instead of a fault."""
    global _host
    assert _host is not None, "install() comes first"
    before, launches = _host, list[Launch]()
    _host = replace(
        _host,
        mode=mode,
        launches=launches,
        undetermined=undetermined or Undetermined(),
        races=races,
    )
    try:
        with CudaOnCpu(_made):
            yield launches
    finally:
        _host = before
