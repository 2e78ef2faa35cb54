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


def placed(view: View, index: list[torch.Tensor]) -> Place:
    """Where a view's tile lies in every block of a group; `index` is in the order of the tile's axes. A gather/scatter
    view's holds the positions along the sparse axis and the first position along the others."""
    if view.form is not None:
        shape, steps = view.form.sizes, view.form.steps
        starts = [
            index[position].to(torch.int64) * step for position, step in zip(view.form.inverse, steps, strict=True)
        ]
        sparse = None
    else:
        shape, sparse = tuple(view.ty.tile_shape), view.ty.sparse_dim
        starts = [one.to(torch.int64) for one in index]
    rank = len(shape)
    offset = view.base.offset.reshape(-1, *(1 for _ in range(rank)))
    inside = None
    for axis, (start, size) in enumerate(zip(starts, shape, strict=True)):
        positions = start.reshape(start.shape[0], -1)
        if axis != sparse:
            positions = positions + torch.arange(size)
        within = (positions >= 0) & (positions < view.shape[axis][:, None])
        if not within.all():
            positions = torch.where(within, positions, 0)
            within = _axis(within, axis, rank)
            inside = within if inside is None else inside & within
        offset = offset + _axis(positions * view.strides[axis][:, None], axis, rank)
    return Place(offset.expand(-1, *shape), None if inside is None else inside.expand(-1, *shape))


def padding_of(machine: Machine, view: View) -> torch.Tensor:
    """What a load puts where its tile is outside the array, one value."""
    mode, real = view.ty.padding_mode, is_float(view.dtype)
    if mode is PaddingMode.UNDETERMINED:
        value = torch.tensor(machine.undetermined.padding(machine, view.base, real)).to(held_dtype(view.dtype))
        return from_memory(to_memory(value, view.dtype), view.dtype)
    if not real and not math.isfinite(_PADDING[mode]):
        raise UnsupportedOperation(f"padding mode {mode.name} of {view.dtype}")
    return torch.tensor(_PADDING[mode], dtype=torch.float32).to(held_dtype(view.dtype))


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
        offset = torch.where(inside, offset, 0)
    return Place(offset, inside)


def spread(offset: torch.Tensor, inside: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Offsets and mask with the same number of blocks."""
    if inside is None:
        return offset, None
    shape = (max(offset.shape[0], inside.shape[0]), *offset.shape[1:])
    return offset.expand(shape), inside.expand(shape)


def read(machine: Machine, pointer: Pointer, place: Place) -> torch.Tensor:
    """The elements at `place`; an element that is not inside is undefined."""
    if not pointer.buffer.numel():
        return torch.zeros(place.offset.shape, dtype=held_dtype(pointer.dtype))
    if machine.races is not None:
        machine.races.loaded(machine, pointer, *spread(place.offset, place.inside))
    _count(machine.counts.loaded, machine, pointer, place)
    machine.counts.loads += machine.group.size
    return from_memory(machine.undetermined.loaded(machine, pointer, pointer.buffer[place.offset]), pointer.dtype)


def write(machine: Machine, pointer: Pointer, place: Place, value: torch.Tensor) -> None:
    """Store `value`, (blocks or 1, *tile), where it is inside; what several blocks store alike is stored once."""
    offset = place.offset
    blocks = max(offset.shape[0], value.shape[0], 1 if place.inside is None else place.inside.shape[0])
    shape = (blocks, *offset.shape[1:])
    offset, stored = offset.expand(shape), to_memory(value, pointer.dtype).expand(shape)
    inside = None if place.inside is None else place.inside.expand(shape)
    _count(machine.counts.stored, machine, pointer, Place(offset, inside))
    if machine.races is not None:
        machine.races.stored(machine, pointer, offset, inside, stored)
    if inside is None or inside.all():
        pointer.buffer[offset] = stored
    else:
        pointer.buffer[offset[inside]] = stored[inside]


def updated(machine: Machine, pointer: Pointer, place: Place) -> None:
    """Note an atomic operation, before it is made."""
    if machine.races is not None:
        machine.races.atomic(machine, pointer, *spread(place.offset, place.inside))
    if machine.undetermined.sought is not None:
        offset, inside = spread(place.offset, place.inside)
        offset = offset.reshape(-1) if inside is None else offset[inside]
        pointer.buffer[offset] = machine.undetermined.loaded(machine, pointer, pointer.buffer[offset])


def _count(counter: dict[int, int], machine: Machine, pointer: Pointer, place: Place) -> None:
    """Count the bytes of an access."""
    blocks, size = machine.group.size, int(pointer.dtype.bitwidth)
    if place.inside is None:
        elements = place.offset[0].numel() * blocks
    else:
        inside = place.inside.expand(max(place.inside.shape[0], place.offset.shape[0]), *place.offset.shape[1:])
        elements = int(inside.sum()) * (blocks // inside.shape[0])
    counter[pointer.buffer.data_ptr()] += elements * size // 8
