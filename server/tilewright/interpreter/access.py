"""What each operation on views, pointers and memory means; how they reach it is `memory`'s."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from tilewright.interpreter import memory
from tilewright.interpreter.machine import Machine, dtype_of, operation, shape_of
from tilewright.interpreter.memory import Place
from tilewright.interpreter.numerics import (
    DType,
    UnsupportedOperation,
    from_memory,
    to_memory,
    unsigned_order,
    wrap,
)
from tilewright.interpreter.unshown import ORDER, meet
from tilewright.interpreter.values import Form, Pointer, Values, View


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
    place = memory.placed(view, index)
    if place.inside is not None and any(op.inbounds) and not place.inside.all():
        outside = ~place.inside.reshape(place.inside.shape[0], -1).all(1)
        machine.fault("a tile leaves its array, though check_bounds=False says that none does", outside)
    return memory.checked(machine, view.base, place)


@operation("tile_load")
def _tile_load(machine: Machine, op: Any, values: Values) -> Any:
    view: View = values[op.view.name]
    index = [values[var.name] for var in op.index]
    shape = shape_of(op.result_vars[0])
    place = _place(machine, op, view, index)
    loaded = memory.read(machine, view.base, place)
    if place.inside is not None:
        loaded = torch.where(place.inside, loaded, memory.padding_of(machine, view).to(loaded.dtype))
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
    memory.write(machine, view.base, place, value)
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
    return pointer, memory.checked(machine, pointer, Place(pointer.offset, mask))


@operation("load_pointer")
def _load_pointer(machine: Machine, op: Any, values: Values) -> Any:
    pointer, place = _pointed(machine, op, values)
    loaded = memory.read(machine, pointer, place)
    if place.inside is not None:
        padding = values[op.padding_value.name] if op.padding_value is not None else loaded.new_zeros(())
        loaded = torch.where(place.inside, loaded, padding)
    return loaded, None


@operation("store_pointer")
def _store_pointer(machine: Machine, op: Any, values: Values) -> Any:
    pointer, place = _pointed(machine, op, values)
    memory.write(machine, pointer, place, values[op.value.name])
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
    memory.updated(machine, pointer, place)
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
    place = memory.checked(machine, view.base, memory.placed(view, [values[var.name] for var in op.index]))
    update = values[op.update.name].permute(0, *(axis + 1 for axis in view.form.inverse))
    if op.mode.name == "ADD_FLOAT":
        _unordered(op)
    memory.updated(machine, view.base, place)
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
