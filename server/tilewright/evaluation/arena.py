"""The arguments of many calls in one piece of device memory that a worker opens once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tilewright.evaluation.taskcode import Inputs
from tilewright.evaluation.tensors import POISON, Argument, TensorSpec, plain_argument, raw_bytes
from tilewright.gpu.memory import DeviceBuffer
from tilewright.task import TaskError

ALIGNMENT = 512
"""Bytes; what torch's own allocator gives."""


class Arena:
    """`count` sets of arguments like `example`, each tensor with memory of its own. Values are whatever was there."""

    def __init__(self, example: Inputs, count: int) -> None:
        self._plain = {name: value for name, value in example.items() if not isinstance(value, torch.Tensor)}
        specs = {name: TensorSpec.of(value) for name, value in example.items() if isinstance(value, torch.Tensor)}
        places: list[dict[str, int]] = []
        end = 0
        for _ in range(count):
            places.append({})
            for name, spec in specs.items():
                places[-1][name] = end
                end += -(-spec.span_bytes // ALIGNMENT) * ALIGNMENT
        self._buffer = DeviceBuffer(end)
        self._raw = self._buffer.tensor()
        handle = self._buffer.handle.hex()
        self.sets: list[dict[str, torch.Tensor]] = []
        self._memory: list[dict[str, torch.Tensor]] = []
        self.described: list[list[dict[str, Any]]] = []
        for where in places:
            self.sets.append({name: specs[name].over(self._raw[place:]) for name, place in where.items()})
            self._memory.append({name: self._raw[at : at + specs[name].span_bytes] for name, at in where.items()})
            tensors = [
                Argument(name=name, tensor=specs[name], handle=handle, offset=place, whole=self._buffer.size)
                for name, place in where.items()
            ]
            plain = [plain_argument(name, value) for name, value in self._plain.items()]
            self.described.append([argument.model_dump() for argument in tensors + plain])

    @property
    def nbytes(self) -> int:
        return self._buffer.size

    def fill(self, index: int, values: Inputs) -> None:
        """Put values into set `index`, gaps between the elements of strided tensors included. Raises `TaskError` where
        they are not of the shape that this case had before."""
        for name, target in self.sets[index].items():
            value = values.get(name)
            need_shape(name, target, value)
            if isinstance(value, torch.Tensor) and value.numel():
                if target.is_contiguous():
                    target.copy_(value)
                else:
                    self._memory[index][name].copy_(raw_bytes(value))

    def copy_(self, other: Arena) -> None:
        """Take over all the bytes of an arena of the same layout."""
        self._raw.copy_(other._raw)

    def poison(self, names: Sequence[str] | None = None) -> None:
        """Fill everything, or the tensors of these names, with what no kernel means to leave."""
        if names is None:
            self._raw.fill_(POISON)
            return
        for one in self._memory:
            for name in names:
                one[name].fill_(POISON)


def need_shape(name: str, like: torch.Tensor, value: Any) -> None:
    """Raises `TaskError` where an argument that is drawn anew for a case is not of the shape of the last draw."""
    if isinstance(value, torch.Tensor) and value.shape != like.shape:
        raise TaskError(
            f"task.py: make_inputs gives {name!r} the shape {tuple(like.shape)} for one seed and {tuple(value.shape)} "
            "for another, which can be checked but not measured on a GPU, where all calls of a case are of one size: "
            "let the case's own values decide the shapes"
        )
