"""What each operation on views, pointers and memory means; how they reach it is `memory`'s."""

from __future__ import annotations

from typing import Any

import torch

from tilewright.interpreter import memory
from tilewright.interpreter.machine import Machine, Values, dtype_of, operation, shape_of
from tilewright.interpreter.memory import KernelFault, Pointer, View
from tilewright.interpreter.numerics import (
    DType,
    UnsupportedOperation,
    from_memory,
    to_memory,
    unsigned_order,
    wrap,
)


def _loaded(machine: Machine, source: Pointer, elements: int, dtype: DType) -> None:
    machine.counts.loads += 1
    machine.counts.loaded[source.buffer.data_ptr()] += elements * int(dtype.bitwidth) // 8


def _stored(machine: Machine, target: Pointer, elements: int, dtype: DType) -> None:
    machine.counts.stored[target.buffer.data_ptr()] += elements * int(dtype.bitwidth) // 8


@operation("make_tensor_view")
def _make_tensor_view(machine: Machine, op: Any, values: Values) -> Any:
    shape = tuple(int(values[var.name]) for var in op.shape)
    strides = tuple(int(values[var.name]) for var in op.strides)
    return View(op.result_var.get_type(), values[op.base_ptr.name], shape, strides)


@operation("make_partition_view", "make_strided_view", "make_gather_scatter_view")
def _make_view(machine: Machine, op: Any, values: Values) -> Any:
    array: View = values[op.array.name]
    return View(op.result_var.get_type(), array.base, array.shape, array.strides)


@operation("make_list_view")
def _make_list_view(machine: Machine, op: Any, values: Values) -> Any:
    return values[op.base_ptr.name]


@operation("get_array_list_item")
def _get_array_list_item(machine: Machine, op: Any, values: Values) -> Any:
    items, index = values[op.x.name], int(values[op.index.name])
    if not 0 <= index < len(items):
        raise KernelFault(f"item {index} of a list of {len(items)} arrays")
    return items[index]


@operation("num_tiles")
def _num_tiles(machine: Machine, op: Any, values: Values) -> Any:
    view: View = values[op.view.name]
    steps = getattr(view.ty, "traversal_steps", view.ty.tile_shape)
    counts = tuple(
        torch.tensor(-(-view.shape[axis] // steps[position]), dtype=torch.int32)
        for position, axis in enumerate(view.ty.order)
    )
    return counts if len(counts) > 1 else counts[0]


def _is_gather(view: View) -> bool:
    return hasattr(view.ty, "sparse_dim")


@operation("tile_load")
def _tile_load(machine: Machine, op: Any, values: Values) -> Any:
    view: View = values[op.view.name]
    index = [values[var.name] for var in op.index]
    if _is_gather(view):
        tile, elements = memory.load_gathered(view, index)
    else:
        tile, elements = memory.load_tile(view, [int(value) for value in index])
    _loaded(machine, view.base, elements, view.dtype)
    return tile.reshape(shape_of(op.result_vars[0])), None


@operation("tile_store")
def _tile_store(machine: Machine, op: Any, values: Values) -> Any:
    view: View = values[op.view.name]
    index = [values[var.name] for var in op.index]
    tile = values[op.tile.name]
    if _is_gather(view):
        elements = memory.store_gathered(view, index, tile)
    else:
        elements = memory.store_tile(view, [int(value) for value in index], tile)
    _stored(machine, view.base, elements, view.dtype)


@operation("pointer_offset")
def _pointer_offset(machine: Machine, op: Any, values: Values) -> Any:
    pointer: Pointer = values[op.pointer.name]
    return Pointer(pointer.buffer, pointer.offset + values[op.offset.name].to(torch.int64), pointer.dtype)


@operation("foreign_pointer_cast", "reinterpret_pointer", "address_space_cast")
def _pointer_cast(machine: Machine, op: Any, values: Values) -> Any:
    return values[op.pointer.name]


def _mask(op: Any, values: Values) -> torch.Tensor | None:
    return None if op.mask is None else values[op.mask.name]


@operation("load_pointer")
def _load_pointer(machine: Machine, op: Any, values: Values) -> Any:
    pointer: Pointer = values[op.pointer.name]
    mask = _mask(op, values)
    dtype = dtype_of(op.result_vars[0])
    offset = memory.addresses(pointer, mask)
    loaded = from_memory(pointer.buffer[offset], dtype)
    _loaded(machine, pointer, loaded.numel() if mask is None else int(mask.sum()), dtype)
    if mask is not None:
        padding = values[op.padding_value.name] if op.padding_value is not None else torch.zeros((), dtype=loaded.dtype)
        loaded = torch.where(mask, loaded, padding)
    return loaded, None


@operation("store_pointer")
def _store_pointer(machine: Machine, op: Any, values: Values) -> Any:
    pointer: Pointer = values[op.pointer.name]
    mask = _mask(op, values)
    dtype = dtype_of(op.value)
    offset = memory.addresses(pointer, mask)
    stored = to_memory(values[op.value.name], dtype).expand(offset.shape)
    if mask is None:
        pointer.buffer[offset] = stored
    else:
        mask = mask.expand(offset.shape)
        pointer.buffer[offset[mask]] = stored[mask]
    _stored(machine, pointer, offset.numel() if mask is None else int(mask.sum()), dtype)


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


@operation("tile_atomic_rmw", "tile_atomic_cas")
def _tile_atomic(machine: Machine, op: Any, values: Values) -> Any:
    pointer: Pointer = values[op.pointer.name]
    swap = op.op == "tile_atomic_cas"
    operand = op.desired if swap else op.update
    dtype = dtype_of(operand)
    mask = _mask(op, values)
    offset = memory.addresses(pointer, mask)
    shape = shape_of(op.result_vars[0])
    places = offset.expand(shape).reshape(-1).tolist()
    updates = values[operand.name].expand(shape).reshape(-1)
    expected = values[op.expected.name].expand(shape).reshape(-1) if swap else updates
    active = [True] * len(places) if mask is None else mask.expand(shape).reshape(-1).tolist()
    old = torch.zeros_like(updates)
    for number, place in enumerate(places):  # elements may share a place: one after the other is exact
        if not active[number]:
            continue
        current = from_memory(pointer.buffer[place], dtype)
        old[number] = current
        if not swap:
            pointer.buffer[place] = to_memory(_combine(op.mode.name, current, updates[number], dtype), dtype)
        elif bool(current == expected[number]):
            pointer.buffer[place] = to_memory(updates[number], dtype)
    _stored(machine, pointer, sum(active), dtype)
    return old.reshape(shape), None


@operation("tile_atomic_red_view")
def _tile_atomic_red_view(machine: Machine, op: Any, values: Values) -> Any:
    view: View = values[op.view.name]
    where = memory.region(view, [int(values[var.name]) for var in op.index])
    if where.elements:
        array = view.array()
        current = from_memory(array[where.array], view.dtype)
        update = values[op.update.name].permute(where.inverse)[where.tile]
        array[where.array] = to_memory(_combine(op.mode.name, current, update, view.dtype), view.dtype)
        _stored(machine, view.base, where.elements, view.dtype)
