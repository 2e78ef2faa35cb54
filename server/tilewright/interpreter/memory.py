"""Where the elements of a tile lie in memory, for every block of a group, and moving them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from cuda.tile import PaddingMode

from tilewright.interpreter.machine import Machine
from tilewright.interpreter.numerics import (
    MEMORY_VIEW,
    UnsupportedOperation,
    from_memory,
    held_dtype,
    is_float,
    to_memory,
)
from tilewright.interpreter.values import Pointer, View

_PADDING = {
    PaddingMode.UNDETERMINED: 0.0,
    PaddingMode.ZERO: 0.0,
    PaddingMode.NEG_ZERO: -0.0,
    PaddingMode.NAN: math.nan,
    PaddingMode.POS_INF: math.inf,
    PaddingMode.NEG_INF: -math.inf,
}


def flat_buffer(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """A tensor's whole storage as one flat tensor of its dtype, and the tensor's offset in it, in elements."""
    tensor = tensor.detach()
    if tensor.dtype in MEMORY_VIEW:
        tensor = tensor.view(MEMORY_VIEW[tensor.dtype])
    length = tensor.untyped_storage().nbytes() // tensor.element_size()
    return torch.as_strided(tensor, (length,), (1,), 0), int(tensor.storage_offset())


@dataclass(frozen=True)
class Place:
    """Where the elements of a tile lie, in the order of the array's axes: `offset` of each in the buffer, and whether
    it is `inside` the array (None: all are); both (blocks or 1, *tile)."""

    offset: torch.Tensor
    inside: torch.Tensor | None


def _axis(values: torch.Tensor, axis: int, rank: int) -> torch.Tensor:
    """(blocks, n) as (blocks, 1, ..., n, ..., 1), with n at `axis` of `rank`."""
    shape = [1] * rank
    shape[axis] = values.shape[1]
    return values.reshape(values.shape[0], *shape)


class Tile:
    """One tile of a partition or strided view in every block of a group; `index` is in the order of the tile's axes."""

    def __init__(self, view: View, index: list[torch.Tensor]) -> None:
        ty = view.ty
        rank = len(ty.tile_shape)
        self.view = view
        self.order = tuple(getattr(ty, "order", range(rank)))
        self.inverse = tuple(self.order.index(axis) for axis in range(rank))
        steps = getattr(ty, "traversal_steps", ty.tile_shape)
        self.shape = tuple(ty.tile_shape[position] for position in self.inverse)
        self.starts = [index[position].to(torch.int64) * steps[position] for position in self.inverse]
        self.whole = all(
            bool(((start >= 0) & (start + size <= extent)).all())
            for start, size, extent in zip(self.starts, self.shape, view.shape, strict=True)
        )

    def place(self) -> Place:
        """Each element's offset and whether it is inside."""
        rank = len(self.shape)
        offset = self.view.base.offset.reshape(-1, *(1 for _ in range(rank)))
        inside = None
        for axis, (start, size) in enumerate(zip(self.starts, self.shape, strict=True)):
            positions = start[:, None] + torch.arange(size)
            if not self.whole:
                within = (positions >= 0) & (positions < self.view.shape[axis][:, None])
                positions = torch.where(within, positions, 0)
                within = _axis(within, axis, rank)
                inside = within if inside is None else inside & within
            offset = offset + _axis(positions * self.view.strides[axis][:, None], axis, rank)
        return Place(offset.expand(-1, *self.shape), None if inside is None else inside.expand(-1, *self.shape))

    def windows(self) -> torch.Tensor | None:
        """The tiles, if all lie inside one tensor's bounds with the same strides in all blocks."""
        if not self.whole or any(stride.shape[0] > 1 for stride in self.view.strides):
            return None
        strides = [int(stride) for stride in self.view.strides]
        buffer = self.view.base.buffer
        span = sum((size - 1) * stride for size, stride in zip(self.shape, strides, strict=True))
        first = self.view.base.offset
        for start, stride in zip(self.starts, strides, strict=True):
            first = first + start * stride
        places = buffer.numel() - span
        if not 0 <= int(first.min()) <= int(first.max()) < places:
            return None
        if first.shape[0] == 1:
            return buffer.as_strided((1, *self.shape), (0, *strides), int(first))
        return buffer.as_strided((places, *self.shape), (1, *strides), 0)[first]


def padding_of(view: View) -> torch.Tensor:
    """What a load puts where its tile is outside the array, one value."""
    value = _PADDING[view.ty.padding_mode]
    if not is_float(view.dtype):
        if not math.isfinite(value):
            raise UnsupportedOperation(f"padding mode {view.ty.padding_mode.name} of {view.dtype}")
        value = 0
    return torch.tensor(value, dtype=torch.float32).to(held_dtype(view.dtype))


def gathered(view: View, index: list[torch.Tensor]) -> Place:
    """Where a gather/scatter view's tile lies: `index` holds the positions along the sparse axis and the first position
    along the others."""
    ty = view.ty
    rank = len(ty.tile_shape)
    offset = view.base.offset.reshape(-1, *(1 for _ in range(rank)))
    inside = torch.ones((), dtype=torch.bool)
    for axis, size in enumerate(ty.tile_shape):
        positions = index[axis].to(torch.int64)
        if axis != ty.sparse_dim:
            positions = positions.reshape(-1, 1) + torch.arange(size)
        positions = positions.reshape(positions.shape[0], -1)
        within = (positions >= 0) & (positions < view.shape[axis][:, None])
        inside = inside & _axis(within, axis, rank)
        offset = offset + _axis(torch.where(within, positions, 0) * view.strides[axis][:, None], axis, rank)
    return Place(offset.expand(-1, *ty.tile_shape), inside.expand(-1, *ty.tile_shape))


def checked(machine: Machine, pointer: Pointer, place: Place) -> Place:
    """`place` without what leaves the buffer; that is a fault, of an access whose caller did not mask it."""
    offset, inside = place.offset, place.inside
    if not offset.numel():
        return place
    low, high = machine.bounds(pointer)
    bad = (offset < low) | (offset >= high)
    if inside is not None:
        bad = bad & inside
    if bad.any():
        first = int(offset.expand(bad.shape)[bad][0]) - low
        who = bad.reshape(bad.shape[0], -1).any(1)
        machine.fault(f"access out of bounds: element {first} of a tensor of {high - low}", who)
        inside = ~bad if inside is None else inside & ~bad
    if inside is not None:
        offset = torch.where(inside, offset, low)
    return Place(offset, inside)


def read(machine: Machine, pointer: Pointer, place: Place) -> torch.Tensor:
    """The elements at `place`; where they are not inside, any."""
    if machine.checker is not None:
        machine.taint = machine.checker.loaded(machine, pointer, place.offset, place.inside)
    _count(machine.counts.loaded, machine, pointer, place)
    machine.counts.loads += machine.group.size
    return from_memory(pointer.buffer[place.offset], pointer.dtype)


def write(machine: Machine, pointer: Pointer, place: Place, value: torch.Tensor, taint: torch.Tensor | None) -> None:
    """Store `value`, (blocks or 1, *tile), where it is inside; what several blocks store alike is stored once."""
    offset = place.offset
    blocks = max(offset.shape[0], value.shape[0], 1 if place.inside is None else place.inside.shape[0])
    shape = (blocks, *offset.shape[1:])
    offset, stored = offset.expand(shape), to_memory(value, pointer.dtype).expand(shape)
    inside = None if place.inside is None else place.inside.expand(shape)
    _count(machine.counts.stored, machine, pointer, Place(offset, inside))
    if machine.checker is not None:
        machine.checker.stored(machine, pointer, offset, inside, stored, taint)
    if inside is None or inside.all():
        pointer.buffer[offset] = stored
    else:
        pointer.buffer[offset[inside]] = stored[inside]


def _count(counter: dict[int, int], machine: Machine, pointer: Pointer, place: Place) -> None:
    blocks, size = machine.group.size, int(pointer.dtype.bitwidth)
    if place.inside is None:
        elements = place.offset[0].numel() * blocks
    else:
        inside = place.inside.expand(max(place.inside.shape[0], place.offset.shape[0]), *place.offset.shape[1:])
        elements = int(inside.sum()) * (blocks // inside.shape[0])
    counter[pointer.buffer.data_ptr()] += elements * size // 8
