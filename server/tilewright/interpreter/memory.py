"""What each operation on views, pointers and memory means: where a tile's elements lie, for every block of a group."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from cuda.tile import PaddingMode

from tilewright.interpreter.machine import Machine, dtype_of, operation, shape_of
from tilewright.interpreter.numerics import (
    MEMORY_VIEW,
    DType,
    UnsupportedOperation,
    from_memory,
    held_dtype,
    is_float,
    to_memory,
    unsigned_order,
    wrap,
)
from tilewright.interpreter.unshown import ORDER, meet
from tilewright.interpreter.values import Form, Pointer, Values, View

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


@operation("make_tensor_view")
def _make_tensor_view(machine: Machine, op: Any, values: Values) -> Any:
    shape = tuple(values[var.name].to(torch.int64) for var in op.shape)
    strides = tuple(values[var.name].to(torch.int64) for var in op.strides)
    return View(op.result_var.get_type(), values[op.base_ptr.name], shape, strides)


@operation("make_partition_view", "make_strided_view", "make_gather_scatter_view")
def _make_view(machine: Machine, op: Any, values: Values) -> Any:
    array, ty = values[op.array.name], op.result_var.get_type()
    return View(ty, array.base, array.shape, array.strides, Form.of(ty))


@operation("make_list_view")
def _make_list_view(machine: Machine, op: Any, values: Values) -> Any:
    return values[op.base_ptr.name]


@operation("get_array_list_item")
def _get_array_list_item(machine: Machine, op: Any, values: Values) -> Any:
    items, index = values[op.x.name], int(values[op.index.name])
    if not 0 <= index < len(items):
        machine.fault(f"item {index} of a list of {len(items)} arrays")
        index = 0
    return items[index]


@operation("num_tiles")
def _num_tiles(machine: Machine, op: Any, values: Values) -> Any:
    view: View = values[op.view.name]
    steps = getattr(view.ty, "traversal_steps", view.ty.tile_shape)
    counts = tuple(
        (-(-view.shape[axis] // steps[position])).to(torch.int32) for position, axis in enumerate(view.ty.order)
    )
    return counts if len(counts) > 1 else counts[0]


def _place(machine: Machine, op: Any, view: View, index: list[torch.Tensor]) -> Place:
    place = placed(view, index)
    if place.inside is not None and any(op.inbounds) and not place.inside.all():
        outside = ~place.inside.reshape(place.inside.shape[0], -1).all(1)
        machine.fault("a tile leaves its array, though check_bounds=False says that none does", outside)
    return checked(machine, view.base, place)


@operation("tile_load")
def _tile_load(machine: Machine, op: Any, values: Values) -> Any:
    view: View = values[op.view.name]
    index = [values[var.name] for var in op.index]
    shape = shape_of(op.result_vars[0])
    place = _place(machine, op, view, index)
    loaded = read(machine, view.base, place)
    if place.inside is not None:
        loaded = torch.where(place.inside, loaded, padding_of(machine, view).to(loaded.dtype))
    if view.form is not None:
        loaded = loaded.permute(0, *(axis + 1 for axis in view.form.order))
    return loaded.reshape(-1, *shape), None


@operation("tile_store")
def _tile_store(machine: Machine, op: Any, values: Values) -> Any:
    view: View = values[op.view.name]
    index = [values[var.name] for var in op.index]
    place, value = _place(machine, op, view, index), values[op.tile.name]
    if view.form is not None:
        value = value.permute(0, *(axis + 1 for axis in view.form.inverse))
    write(machine, view.base, place, value)
    return ()


@operation("pointer_offset")
def _pointer_offset(machine: Machine, op: Any, values: Values) -> Any:
    pointer: Pointer = values[op.pointer.name]
    return replace(pointer, offset=pointer.offset + values[op.offset.name].to(torch.int64))


@operation("foreign_pointer_cast", "reinterpret_pointer", "address_space_cast")
def _pointer_cast(machine: Machine, op: Any, values: Values) -> Any:
    return values[op.pointer.name]


def _pointed(machine: Machine, op: Any, values: Values) -> tuple[Pointer, Place]:
    """The pointer tile that an operation goes through, and where its elements lie."""
    pointer, mask = values[op.pointer.name], None if op.mask is None else values[op.mask.name]
    return pointer, checked(machine, pointer, Place(pointer.offset, mask))


@operation("load_pointer")
def _load_pointer(machine: Machine, op: Any, values: Values) -> Any:
    pointer, place = _pointed(machine, op, values)
    loaded = read(machine, pointer, place)
    if place.inside is not None:
        padding = values[op.padding_value.name] if op.padding_value is not None else loaded.new_zeros(())
        loaded = torch.where(place.inside, loaded, padding)
    return loaded, None


@operation("store_pointer")
def _store_pointer(machine: Machine, op: Any, values: Values) -> Any:
    pointer, place = _pointed(machine, op, values)
    write(machine, pointer, place, values[op.value.name])
    return ()


def _combine(mode: str, current: torch.Tensor, update: torch.Tensor, dtype: DType) -> torch.Tensor:
    if mode in ("ADD_INT", "ADD_FLOAT"):
        return wrap(current + update, dtype)
    if mode.startswith(("MAX", "MIN")):
        function = torch.maximum if mode.startswith("MAX") else torch.minimum
        return unsigned_order(function(unsigned_order(current, dtype), unsigned_order(update, dtype)), dtype)
    bitwise = {
        "BITWISE_AND": torch.bitwise_and,
        "BITWISE_OR": torch.bitwise_or,
        "BITWISE_XOR": torch.bitwise_xor,
    }
    if mode == "EXCHANGE":
        return update
    if mode not in bitwise:
        raise UnsupportedOperation(f"atomic mode {mode} is not interpreted by this version")
    return bitwise[mode](current, update)


def _add(machine: Machine, pointer: Pointer, place: Place, update: torch.Tensor) -> None:
    """Atomic additions whose results nobody reads, for all blocks at once, in some order, as on a GPU."""
    shape = (machine.group.size, *place.offset.shape[1:])
    offset, update = place.offset.expand(shape), to_memory(update, pointer.dtype).expand(shape)
    if place.inside is not None:
        inside = place.inside.expand(shape)
        offset, update = offset[inside], update[inside]
    pointer.buffer.index_put_((offset,), update, accumulate=True)
    machine.counts.stored[pointer.buffer.data_ptr()] += offset.numel() * int(pointer.dtype.bitwidth) // 8


def _unordered(op: Any) -> None:
    meet(ORDER, f"{str(op.loc.filename).rpartition('/')[2]}:{op.loc.line}")


@operation("tile_atomic_rmw", "tile_atomic_cas")
def _tile_atomic(machine: Machine, op: Any, values: Values) -> Any:
    pointer, place = _pointed(machine, op, values)
    swap = op.op == "tile_atomic_cas"
    operand = op.desired if swap else op.update
    if swap or op.mode.name in ("ADD_FLOAT", "EXCHANGE"):
        _unordered(op)
    dtype, shape = dtype_of(operand), shape_of(op.result_vars[0])
    updated(machine, pointer, place)
    if machine.group.size > 1:
        _add(machine, pointer, place, values[operand.name])
        return torch.zeros((1, *shape), dtype=values[operand.name].dtype), None
    places = place.offset.expand(1, *shape).reshape(-1).tolist()
    updates = values[operand.name].expand(1, *shape).reshape(-1)
    expected = values[op.expected.name].expand(1, *shape).reshape(-1) if swap else updates
    mask = place.inside
    active = [True] * len(places) if mask is None else mask.expand(1, *shape).reshape(-1).tolist()
    old = expected.clone() if swap else torch.zeros_like(updates)  # what is masked off compares as equal
    for number, where in enumerate(places):  # elements may share a place: one after the other is exact
        if not active[number]:
            continue
        current = from_memory(pointer.buffer[where : where + 1], dtype)[0]
        old[number] = current
        if not swap:
            new = _combine(op.mode.name, current, updates[number], dtype)
            pointer.buffer[where] = to_memory(new.reshape(1), dtype)[0]
        elif bool(current == expected[number]):
            pointer.buffer[where] = to_memory(updates[number].reshape(1), dtype)[0]
    machine.counts.stored[pointer.buffer.data_ptr()] += sum(active) * int(dtype.bitwidth) // 8
    return old.reshape(1, *shape), None


@operation("tile_atomic_red_view")
def _tile_atomic_red_view(machine: Machine, op: Any, values: Values) -> Any:
    view: View = values[op.view.name]
    assert view.form is not None
    place = checked(machine, view.base, placed(view, [values[var.name] for var in op.index]))
    update = values[op.update.name].permute(0, *(axis + 1 for axis in view.form.inverse))
    if op.mode.name == "ADD_FLOAT":
        _unordered(op)
    updated(machine, view.base, place)
    if op.mode.name in ("ADD_INT", "ADD_FLOAT"):
        _add(machine, view.base, place, update)
    else:
        inside = torch.ones_like(place.offset, dtype=torch.bool) if place.inside is None else place.inside
        offset = place.offset[inside]
        current = from_memory(view.base.buffer[offset], view.dtype)
        new = _combine(op.mode.name, current, update.expand(inside.shape)[inside], view.dtype)
        view.base.buffer[offset] = to_memory(new, view.dtype)
        machine.counts.stored[view.base.buffer.data_ptr()] += offset.numel() * int(view.dtype.bitwidth) // 8
    return ()
