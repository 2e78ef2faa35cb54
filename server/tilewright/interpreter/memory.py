"""Pointers and views into tensors, as kernels see them, and the loads and stores through them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from cuda.tile import PaddingMode

from tilewright.interpreter.numerics import (
    MEMORY_VIEW,
    DType,
    UnsupportedOperation,
    from_memory,
    held_dtype,
    is_float,
    to_memory,
)

_PADDING = {
    PaddingMode.UNDETERMINED: 0.0,
    PaddingMode.ZERO: 0.0,
    PaddingMode.NEG_ZERO: -0.0,
    PaddingMode.NAN: math.nan,
    PaddingMode.POS_INF: math.inf,
    PaddingMode.NEG_INF: -math.inf,
}


class KernelFault(Exception):
    """The kernel did something that a GPU would not survive or not define, such as an access out of bounds."""


@dataclass(frozen=True)
class Pointer:
    """A tile of addresses: offsets, in elements, into one flat buffer."""

    buffer: torch.Tensor
    offset: torch.Tensor
    dtype: DType


@dataclass(frozen=True)
class View:
    """A tensor, partition, strided or gather/scatter view: `ty` is its type in the IR, sizes in elements."""

    ty: Any
    base: Pointer
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def dtype(self) -> DType:
        return self.base.dtype

    def array(self) -> torch.Tensor:
        """The whole array behind the view. Raises `KernelFault` where it does not lie within its buffer."""
        offset = int(self.base.offset)
        last = offset + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        if not 0 <= offset <= last < self.base.buffer.numel():
            raise KernelFault(f"a view of shape {self.shape} and strides {self.strides} leaves its tensor")
        return self.base.buffer.as_strided(self.shape, self.strides, offset)


def flat_buffer(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """A tensor's whole storage as one flat tensor of its dtype, and the tensor's offset in it, in elements."""
    tensor = tensor.detach()
    if tensor.dtype in MEMORY_VIEW:
        tensor = tensor.view(MEMORY_VIEW[tensor.dtype])
    length = tensor.untyped_storage().nbytes() // tensor.element_size()
    return torch.as_strided(tensor, (length,), (1,), 0), int(tensor.storage_offset())


@dataclass(frozen=True)
class Region:
    """Where one tile of a view lies: slices of the array, slices of the tile, and the order between their axes."""

    array: tuple[slice, ...]
    tile: tuple[slice, ...]
    array_tile_shape: tuple[int, ...]
    order: tuple[int, ...]
    inverse: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(part.stop - part.start for part in self.array)


def region(view: View, index: list[int]) -> Region:
    """The part of the array that tile `index` of a partition or strided view covers, cut at the array's bounds."""
    ty = view.ty
    rank = len(ty.tile_shape)
    order = tuple(getattr(ty, "order", range(rank)))
    steps = getattr(ty, "traversal_steps", ty.tile_shape)
    inverse = tuple(order.index(axis) for axis in range(rank))
    array, tile = [], []
    for axis in range(rank):
        position = inverse[axis]
        start = index[position] * steps[position]
        low = min(max(start, 0), view.shape[axis])
        high = max(min(start + ty.tile_shape[position], view.shape[axis]), low)
        array.append(slice(low, high))
        tile.append(slice(low - start, high - start))
    return Region(tuple(array), tuple(tile), tuple(ty.tile_shape[i] for i in inverse), order, inverse)


def load_tile(view: View, index: list[int]) -> tuple[torch.Tensor, int]:
    """Tile `index` of a view, padded as the view says, and the number of elements read."""
    where = region(view, index)
    if where.elements == math.prod(where.array_tile_shape):
        tile = from_memory(view.array()[where.array], view.dtype).clone()
        return tile.permute(where.order), where.elements
    tile = _padding(view, where.array_tile_shape)
    if where.elements:
        tile[where.tile] = from_memory(view.array()[where.array], view.dtype)
    return tile.permute(where.order), where.elements


def store_tile(view: View, index: list[int], tile: torch.Tensor) -> int:
    """Write a tile where it lies within the array; the number of elements written."""
    where = region(view, index)
    if where.elements:
        view.array()[where.array] = to_memory(tile.permute(where.inverse)[where.tile], view.dtype)
    return where.elements


def _padding(view: View, shape: tuple[int, ...]) -> torch.Tensor:
    value = _PADDING[view.ty.padding_mode]
    if not is_float(view.dtype):
        if not math.isfinite(value):
            raise UnsupportedOperation(f"padding mode {view.ty.padding_mode.name} of {view.dtype}")
        value = 0
    return torch.full(shape, value, dtype=torch.float32).to(held_dtype(view.dtype))


def gathered(view: View, index: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Of a gather/scatter view's tile: each element's offset in the buffer, and whether it is in bounds."""
    ty = view.ty
    rank = len(ty.tile_shape)
    offset = view.base.offset.to(torch.int64)
    inside = torch.ones((), dtype=torch.bool)
    for axis in range(rank):
        if axis == ty.sparse_dim:
            positions = index[axis].reshape(-1).to(torch.int64)
        else:
            positions = int(index[axis]) + torch.arange(ty.tile_shape[axis])
        positions = positions.reshape([-1 if axis == other else 1 for other in range(rank)])
        inside = inside & (positions >= 0) & (positions < view.shape[axis])
        offset = offset + positions * view.strides[axis]
    offset = offset.expand(ty.tile_shape)
    inside = inside.expand(ty.tile_shape)
    return torch.where(inside, offset, 0), inside


def load_gathered(view: View, index: list[torch.Tensor]) -> tuple[torch.Tensor, int]:
    """A tile of a gather/scatter view, padded out of bounds, and the number of elements read."""
    offset, inside = gathered(view, index)
    values = from_memory(view.base.buffer[offset], view.dtype)
    padding = _padding(view, ()).to(values.dtype)
    return torch.where(inside, values, padding), int(inside.sum())


def store_gathered(view: View, index: list[torch.Tensor], tile: torch.Tensor) -> int:
    """Write a tile through a gather/scatter view where it is in bounds; the number of elements written."""
    offset, inside = gathered(view, index)
    view.base.buffer[offset[inside]] = to_memory(tile[inside], view.dtype)
    return int(inside.sum())


def addresses(pointer: Pointer, mask: torch.Tensor | None) -> torch.Tensor:
    """A pointer tile's offsets, masked ones set to 0. Raises `KernelFault` where one leaves its buffer."""
    offset = pointer.offset if mask is None else torch.where(mask, pointer.offset, 0)
    if offset.numel() and not 0 <= int(offset.min()) <= int(offset.max()) < pointer.buffer.numel():
        bad = offset[(offset < 0) | (offset >= pointer.buffer.numel())].reshape(-1)[0]
        raise KernelFault(f"access out of bounds: element {int(bad)} of a buffer of {pointer.buffer.numel()}")
    return offset
