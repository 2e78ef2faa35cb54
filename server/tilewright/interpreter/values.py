"""What a launch's blocks hold while they run side by side: every value has the blocks along its first axis.

A value that is the same in all blocks has length 1 there. Beside a value lies its taint, where a checker follows one:
per element, where something undetermined came from (see `checker`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch

from tilewright.interpreter.numerics import DType, UnsupportedOperation

Cell: TypeAlias = tuple[Any, torch.Tensor | None]
"""A value and its taint."""


@dataclass(frozen=True)
class Pointer:
    """A tile of addresses: offsets, in elements, into one flat buffer; shape (blocks or 1, *tile).

    The tensor that they lead into has its elements from `low` to, not including, `high`.
    """

    buffer: torch.Tensor
    offset: torch.Tensor
    dtype: DType
    low: int
    high: int


@dataclass(frozen=True)
class View:
    """A tensor, partition, strided or gather/scatter view: `ty` is its type in the IR. Shape and strides, in elements,
    are one tensor an axis, of length 1 or the number of blocks."""

    ty: Any
    base: Pointer
    shape: tuple[torch.Tensor, ...]
    strides: tuple[torch.Tensor, ...]

    @property
    def dtype(self) -> DType:
        return self.base.dtype


@dataclass(frozen=True)
class Group:
    """Blocks that execute the same operations: their indices, (blocks, 3), and their numbers in the grid, (blocks,)."""

    blocks: torch.Tensor
    numbers: torch.Tensor

    @property
    def size(self) -> int:
        return int(self.blocks.shape[0])

    def select(self, who: torch.Tensor | None) -> Group:
        return self if who is None else Group(self.blocks[who], self.numbers[who])

    def shown(self, position: int) -> str:
        """The index of one of the blocks, as a message gives it."""
        return str(tuple(self.blocks[position].tolist()))


class Values:
    """Values by name. With a `parent`, what is not here is taken from there, for the blocks `who` of its group."""

    def __init__(self, parent: Values | None = None, who: torch.Tensor | None = None) -> None:
        self._cells: dict[str, Cell] = {}
        self._parent = parent
        self._who = who

    def __getitem__(self, name: str) -> Any:
        return self.cell(name)[0]

    def __setitem__(self, name: str, value: Any) -> None:
        self._cells[name] = (value, None)

    def cell(self, name: str) -> Cell:
        found = self._cells.get(name)
        if found is None:
            if self._parent is None:
                raise KeyError(name)
            found = self._parent.cell(name)
            if self._who is not None:
                found = select(found[0], self._who), select(found[1], self._who)
            self._cells[name] = found
        return found

    def put(self, name: str, cell: Cell) -> None:
        self._cells[name] = cell


def select(value: Any, who: torch.Tensor) -> Any:
    """A value of a group for the blocks `who` of it."""
    if isinstance(value, torch.Tensor):
        return value if value.shape[0] == 1 else value[who]
    if isinstance(value, Pointer):
        return replace(value, offset=select(value.offset, who))
    if isinstance(value, View):
        shape, strides = (tuple(select(part, who) for part in parts) for parts in (value.shape, value.strides))
        return replace(value, base=select(value.base, who), shape=shape, strides=strides)
    return value


def joined(cells: list[Cell], sizes: list[int], order: torch.Tensor) -> Cell:
    """One cell of several groups' cells, one after the other, `order` applied. `sizes` are the groups'."""
    values = [value for value, _ in cells]
    first = values[0]
    if isinstance(first, Pointer):
        if any(value.buffer.data_ptr() != first.buffer.data_ptr() for value in values):
            raise UnsupportedOperation("a pointer that leads to different tensors in different blocks")
        offset = joined([(value.offset, None) for value in values], sizes, order)[0]
        low, high = min(value.low for value in values), max(value.high for value in values)
        return replace(first, offset=offset, low=low, high=high), None
    if not isinstance(first, torch.Tensor):
        return first, None
    value = torch.cat([_wide(part, size) for part, size in zip(values, sizes, strict=True)])[order]
    if all(taint is None for _, taint in cells):
        return value, None
    taints = [
        _wide(torch.zeros((), dtype=torch.int16) if taint is None else taint, size, part)
        for (part, taint), size in zip(cells, sizes, strict=True)
    ]
    return value, torch.cat(taints)[order]


def _wide(value: torch.Tensor, size: int, like: torch.Tensor | None = None) -> torch.Tensor:
    return value.expand(size, *(value if like is None else like).shape[1:])
