"""What a call finds where nothing is determined: in memory that nobody wrote, and in undetermined padding."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from tilewright.interpreter.machine import Machine
    from tilewright.interpreter.values import Pointer

PADDING, UNWRITTEN = "undetermined_padding", "unwritten_memory"
LOOP_LIMIT = 1_000_000
MARK = 0x7B
"""Each byte of memory that nobody wrote, where lines are sought."""


class Filling(NamedTuple):
    """Each byte of memory that nobody wrote, and the padding of floats and of integers."""

    byte: int
    real: float
    whole: int


FILLINGS = (
    Filling(0xFF, 0.0, 0),
    Filling(0x00, math.nan, -1),
    Filling(0x7B, 1e30, 100),
    Filling(0xFB, -1e30, -100),
    Filling(0xBF, -0.5, 3),
)
"""The first is that of ordinary calls: 0xFF is NaN in floats, and zeros could pass for a result."""


class Source(NamedTuple):
    """A line that loads what nothing determined, and of which kind."""

    kind: str
    file: str
    line: int


@dataclass
class Undetermined:
    """Memory and padding hold `filling`. No loop runs more often than `loop_limit`.

    Where lines are `sought`, what they load is as in `filling`, and what all others load is as in the first filling;
    memory holds a mark until it is loaded. `sources` lists the lines that load something undetermined, each with the
    tensor's name.
    """

    filling: Filling = FILLINGS[0]
    loop_limit: int = LOOP_LIMIT
    sought: frozenset[Source] | None = None
    sources: dict[Source, str] = field(default_factory=dict)
    _fresh: dict[int, torch.Tensor] = field(default_factory=dict)

    def fill(self, tensor: torch.Tensor) -> None:
        """Fill the memory of a tensor that nobody has written."""
        with torch._C.DisableTorchFunction():  # within which no tensor seems to be on a GPU
            if not tensor.numel() or tensor.device.type != "cpu":
                return
            storage = tensor.untyped_storage()
            byte = self.filling.byte if self.sought is None else MARK
            torch.empty(0, dtype=torch.uint8).set_(storage).fill_(byte)
            if self.sought is not None:
                self._fresh[storage.data_ptr()] = tensor  # kept, so that its address stays its own

    def padding(self, machine: Machine, pointer: Pointer, real: bool) -> float:
        """What undetermined padding of the present load holds."""
        filling = self._here(machine, pointer, PADDING)
        return filling.real if real else filling.whole

    def loaded(self, machine: Machine, pointer: Pointer, value: torch.Tensor) -> torch.Tensor:
        """The elements that a load brings of memory that holds `value`."""
        if pointer.buffer.data_ptr() not in self._fresh:
            return value
        unwritten = value == _element(MARK, value.dtype)
        if not unwritten.any():
            return value
        return torch.where(unwritten, _element(self._here(machine, pointer, UNWRITTEN).byte, value.dtype), value)

    def _here(self, machine: Machine, pointer: Pointer, kind: str) -> Filling:
        if self.sought is None:
            return self.filling
        source = Source(kind, str(machine.op.loc.filename), int(machine.op.loc.line))
        self.sources.setdefault(source, machine.name_of(pointer))
        return self.filling if source in self.sought else FILLINGS[0]


def _element(byte: int, dtype: torch.dtype) -> torch.Tensor:
    """An element all of whose bytes are `byte`."""
    return torch.full((dtype.itemsize,), byte, dtype=torch.uint8).view(dtype)[0]
