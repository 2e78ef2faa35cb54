"""What a launch's blocks hold while they run side by side: every value has the blocks along its first axis.

A value that is the same in all blocks has length 1 there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch

from tilewright.interpreter.numerics import DType, UnsupportedOperation


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


class Form(NamedTuple):
    """The tiles of a partition or strided view. `order` gives the array's axis of each axis of the tile, `inverse` the
    tile's of each of the array's; sizes and steps from tile to tile are in the order of the array's axes."""

    order: tuple[int, ...]
    inverse: tuple[int, ...]
    sizes: tuple[int, ...]
    steps: tuple[int, ...]

    @classmethod
    def of(cls, ty: Any) -> Form | None:
        """The form of a view's tiles; None for a view that has none, or that gathers."""
        if hasattr(ty, "sparse_dim") or not hasattr(ty, "tile_shape"):
            return None
        order = tuple(ty.order)
        inverse = tuple(order.index(axis) for axis in range(len(order)))
        steps = getattr(ty, "traversal_steps", ty.tile_shape)
        return cls(order, inverse, *(tuple(sizes[axis] for axis in inverse) for sizes in (ty.tile_shape, steps)))


@dataclass(frozen=True)
class View:
    """A tensor, partition, strided or gather/scatter view: `ty` is its type in the IR. Shape and strides, in elements,
    are one tensor an axis, of length 1 or the number of blocks."""

    ty: Any
    base: Pointer
    shape: tuple[torch.Tensor, ...]
    strides: tuple[torch.Tensor, ...]
    form: Form | None = None

    @property
    def dtype(self) -> DType:
        return self.base.dtype


@dataclass(frozen=True)
class Group:
    """Blocks that execute the same operations: their indices, (blocks, 3), and their numbers in the grid, (blocks,)."""

    blocks: torch.Tensor
    numbers: torch.Tensor

    @cached_property
    def size(self) -> int:
        return int(self.blocks.shape[0])

    def select(self, who: torch.Tensor | None) -> Group:
        return self if who is None else Group(self.blocks[who], self.numbers[who])

    def shown(self, position: int) -> str:
        """The index of one of the blocks, as a message gives it."""
        return str(tuple(self.blocks[position].tolist()))


class Values(dict[str, Any]):
    """Values by name. With a `parent`, what is not here is taken from there, for the blocks `who` of its group."""

    def __init__(self, parent: Values | None = None, who: torch.Tensor | None = None) -> None:
        super().__init__()
        self._parent = parent
        self._who = who

    def __missing__(self, name: str) -> Any:
        if self._parent is None:
            raise KeyError(name)
        value = self._parent[name]
        self[name] = value if self._who is None else select(value, self._who)
        return self[name]


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


def joined(values: list[Any], sizes: list[int], order: torch.Tensor) -> Any:
    """One value of several groups' values, one after the other, `order` applied. `sizes` are the groups'."""
    first = values[0]
    if isinstance(first, Pointer):
        if any(value.buffer.data_ptr() != first.buffer.data_ptr() for value in values):
            raise UnsupportedOperation("a pointer that leads to different tensors in different blocks")
        offset = joined([value.offset for value in values], sizes, order)
        low, high = min(value.low for value in values), max(value.high for value in values)
        return replace(first, offset=offset, low=low, high=high)
    if not isinstance(first, torch.Tensor):
        return first
    return torch.cat([value.expand(size, *value.shape[1:]) for value, size in zip(values, sizes, strict=True)])[order]
