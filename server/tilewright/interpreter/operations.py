"""What each operation of cuTile IR means, in torch. Control flow is the machine's; memory is `memory`'s."""

from __future__ import annotations

from typing import Any

import torch
from cuda.tile import _datatype as dt

from tilewright.interpreter import memory
from tilewright.interpreter.machine import Machine, Values, operation
from tilewright.interpreter.memory import KernelFault, Pointer, View
from tilewright.interpreter.numerics import (
    DType,
    UnsupportedOperation,
    constant,
    convert,
    from_memory,
    held_dtype,
    is_float,
    to_memory,
    unsigned_order,
    wide,
    wrap,
)


def _dtype(var: Any) -> DType:
    return var.get_type().dtype


def _shape(var: Any) -> tuple[int, ...]:
    return tuple(var.get_type().shape)


def _loaded(machine: Machine, source: Pointer, elements: int, dtype: DType) -> None:
    machine.counts.loads += 1
    machine.counts.loaded[source.buffer.data_ptr()] += elements * int(dtype.bitwidth) // 8


def _stored(machine: Machine, target: Pointer, elements: int, dtype: DType) -> None:
    machine.counts.stored[target.buffer.data_ptr()] += elements * int(dtype.bitwidth) // 8


def _reshaped(value: Any, change: Any) -> Any:
    if isinstance(value, Pointer):
        return Pointer(value.buffer, change(value.offset), value.dtype)
    return change(value)


# Tokens order memory accesses between threads; one block at a time is ordered already.
@operation("make_token", "join_tokens", "grid_dependency_control_wait", "grid_dependency_control_launch_dependents")
def _nothing(machine: Machine, op: Any, values: Values) -> Any:
    return None


@operation("make_dummy")
def _make_dummy(machine: Machine, op: Any, values: Values) -> Any:
    ty = op.result_var.get_type()
    return torch.zeros(tuple(ty.shape), dtype=held_dtype(ty.dtype)) if hasattr(ty, "dtype") else None


@operation("typed_const")
def _typed_const(machine: Machine, op: Any, values: Values) -> Any:
    return constant(op.value, _shape(op.result_var), _dtype(op.result_var))


@operation("assign")
def _assign(machine: Machine, op: Any, values: Values) -> Any:
    return values[op.value.name]


@operation("assume_div_by")
def _assume_div_by(machine: Machine, op: Any, values: Values) -> Any:
    value = values[op.x.name]
    if isinstance(value, torch.Tensor) and value.numel() == 1 and int(value) % op.divisor:
        raise KernelFault(f"{int(value)} is assumed to be a multiple of {op.divisor}")
    return value


@operation("assume_bounded")
def _assume_bounded(machine: Machine, op: Any, values: Values) -> Any:
    return values[op.x.name]


@operation("tile_bid")
def _tile_bid(machine: Machine, op: Any, values: Values) -> Any:
    return torch.tensor(machine.block[op.axis], dtype=torch.int32)


@operation("tile_num_blocks")
def _tile_num_blocks(machine: Machine, op: Any, values: Values) -> Any:
    return torch.tensor(machine.grid[op.axis], dtype=torch.int32)


# Views and pointers


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
    return tile.reshape(_shape(op.result_vars[0])), None


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
    dtype = _dtype(op.result_vars[0])
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
    dtype = _dtype(op.value)
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
    dtype = _dtype(operand)
    mask = _mask(op, values)
    offset = memory.addresses(pointer, mask)
    shape = _shape(op.result_vars[0])
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


# Shape


@operation("tile_reshape")
def _tile_reshape(machine: Machine, op: Any, values: Values) -> Any:
    return _reshaped(values[op.x.name], lambda value: value.reshape(_shape(op.result_var)))


@operation("tile_broadcast")
def _tile_broadcast(machine: Machine, op: Any, values: Values) -> Any:
    return _reshaped(values[op.x.name], lambda value: value.expand(_shape(op.result_var)))


@operation("tile_permute")
def _tile_permute(machine: Machine, op: Any, values: Values) -> Any:
    return _reshaped(values[op.x.name], lambda value: value.permute(op.axes))


@operation("tile_cat")
def _tile_cat(machine: Machine, op: Any, values: Values) -> Any:
    return torch.cat((values[op.x.name], values[op.y.name]), op.axis)


def _slices(op: Any, values: Values, sizes: tuple[int, ...]) -> tuple[slice, ...]:
    starts = [int(values[var.name]) * size for var, size in zip(op.index, sizes, strict=True)]
    return tuple(slice(start, start + size) for start, size in zip(starts, sizes, strict=True))


@operation("tile_extract")
def _tile_extract(machine: Machine, op: Any, values: Values) -> Any:
    return values[op.x.name][_slices(op, values, _shape(op.result_var))]


@operation("tile_insert")
def _tile_insert(machine: Machine, op: Any, values: Values) -> Any:
    result = values[op.x.name].clone()
    result[_slices(op, values, _shape(op.value))] = values[op.value.name]
    return result


@operation("tile_arange")
def _tile_arange(machine: Machine, op: Any, values: Values) -> Any:
    dtype = _dtype(op.result_var)
    return wrap(torch.arange(_shape(op.result_var)[0], dtype=held_dtype(dtype)), dtype)


@operation("tile_astype")
def _tile_astype(machine: Machine, op: Any, values: Values) -> Any:
    return convert(values[op.x.name], _dtype(op.x), _dtype(op.result_var))


@operation("tile_bitcast")
def _tile_bitcast(machine: Machine, op: Any, values: Values) -> Any:
    source, target = _dtype(op.x), _dtype(op.result_var)
    raw = to_memory(values[op.x.name], source).contiguous()
    stored = to_memory(torch.empty(0, dtype=held_dtype(target)), target).dtype
    return from_memory(raw.reshape(-1).view(stored).reshape(raw.shape), target)


# Arithmetic


def _count(machine: Machine, result: torch.Tensor, dtype: DType, flops: int = 1) -> None:
    if is_float(dtype):
        machine.counts.scalar_flops += flops * result.numel()


@operation("raw_cmp")
def _raw_cmp(machine: Machine, op: Any, values: Values) -> Any:
    dtype = _dtype(op.lhs)
    left, right = (wide(unsigned_order(values[var.name], dtype)) for var in (op.lhs, op.rhs))
    return getattr(torch, op.fn)(left, right)


@operation("raw_binary_bitwise")
def _raw_binary_bitwise(machine: Machine, op: Any, values: Values) -> Any:
    functions = {"and_": torch.bitwise_and, "or_": torch.bitwise_or, "xor": torch.bitwise_xor}
    return functions[op.fn](values[op.lhs.name], values[op.rhs.name])


@operation("raw_bitwise_shift")
def _raw_bitwise_shift(machine: Machine, op: Any, values: Values) -> Any:
    left, right, dtype = values[op.lhs.name], values[op.rhs.name], _dtype(op.lhs)
    if op.fn == "lshift":
        return wrap(left << right, dtype)
    if dtype == dt.uint64:  # held signed: clear what the arithmetic shift brought in
        return torch.where(right == 0, left, (left >> right) & ((1 << (64 - right).clamp(max=62)) - 1))
    return left >> right


def _extremum(op: Any, left: torch.Tensor, right: torch.Tensor, dtype: DType) -> torch.Tensor:
    if not is_float(dtype):
        function = torch.maximum if op.fn == "max" else torch.minimum
        return unsigned_order(function(unsigned_order(left, dtype), unsigned_order(right, dtype)), dtype)
    if op.propagate_nan:
        return (torch.maximum if op.fn == "max" else torch.minimum)(left, right)
    return (torch.fmax if op.fn == "max" else torch.fmin)(left, right)


@operation("raw_binary_arith")
def _raw_binary_arith(machine: Machine, op: Any, values: Values) -> Any:
    left, right = values[op.lhs.name], values[op.rhs.name]
    dtype = _dtype(op.result_var)
    match op.fn:
        case "add" | "sub" | "mul":
            result = wrap(getattr(torch, op.fn)(left, right), dtype)
        case "max" | "min":
            result = _extremum(op, left, right, dtype)
        case "truediv":
            result = left / right
        case "pow" | "atan2":
            result = getattr(torch, op.fn)(left, right)
        case "floordiv" | "cdiv" | "truncdiv" | "c_mod":
            result = _divide(op.fn, left, right, dtype)
        case _:
            raise UnsupportedOperation(f"arithmetic {op.fn!r} is not interpreted by this version")
    _count(machine, result, dtype)
    return result


def _divide(function: str, left: torch.Tensor, right: torch.Tensor, dtype: DType) -> torch.Tensor:
    if not is_float(dtype) and bool((right == 0).any()):
        raise KernelFault("integer division by zero")
    match function:
        case "floordiv":
            return torch.div(left, right, rounding_mode="floor")
        case "cdiv":
            return -torch.div(-left, right, rounding_mode="floor")
        case "truncdiv":
            return torch.div(left, right, rounding_mode="trunc")
        case _:
            return torch.fmod(left, right)


@operation("raw_fpowi")
def _raw_fpowi(machine: Machine, op: Any, values: Values) -> Any:
    return torch.pow(values[op.base.name], values[op.exponent.name])


@operation("raw_where")
def _raw_where(machine: Machine, op: Any, values: Values) -> Any:
    condition, yes, no = values[op.cond.name], values[op.x.name], values[op.y.name]
    if isinstance(yes, Pointer):
        if yes.buffer is not no.buffer:
            return yes if bool(condition) else no
        return Pointer(yes.buffer, torch.where(condition, yes.offset, no.offset), yes.dtype)
    return torch.where(condition, yes, no)


@operation("fma")
def _fma(machine: Machine, op: Any, values: Values) -> Any:
    left, right, acc = (values[var.name] for var in (op.lhs, op.rhs, op.acc))
    result = (left.double() * right.double() + acc.double()).to(acc.dtype)
    _count(machine, result, _dtype(op.result_var), flops=2)
    return result


_CHEAP = {"neg", "abs", "invert", "bitwise_not", "floor", "ceil"}


@operation("unaryop")
def _unaryop(machine: Machine, op: Any, values: Values) -> Any:
    value, dtype = values[op.operand.name], _dtype(op.result_var)
    match op.fn:
        case "neg":
            return wrap(-value, dtype)
        case "invert" | "bitwise_not":
            return wrap(~value, dtype)
    exact = value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
    result: torch.Tensor = getattr(torch, op.fn)(exact).to(value.dtype)
    if op.fn in _CHEAP:
        _count(machine, result, dtype)
    else:
        machine.counts.special_functions += result.numel()
    return result


@operation("tile_mma")
def _tile_mma(machine: Machine, op: Any, values: Values) -> Any:
    left, right, acc = (values[var.name] for var in (op.x, op.y, op.acc))
    machine.counts.matrix_flops[str(_dtype(op.x))] += 2 * left.numel() * right.shape[-1]
    if not left.dtype.is_floating_point:
        return (torch.matmul(left.double(), right.double()).to(torch.int64) + acc).to(acc.dtype)
    compute = torch.float64 if left.dtype == torch.float64 else torch.float32
    return (torch.matmul(left.to(compute), right.to(compute)) + acc.to(compute)).to(acc.dtype)


@operation("tile_reduce")
def _tile_reduce(machine: Machine, op: Any, values: Values) -> Any:
    operands = [values[var.name] for var in op.xs]
    length = operands[0].shape[op.axis]
    while length > 1:
        half = length // 2
        left = [value.narrow(op.axis, 0, half) for value in operands]
        right = [value.narrow(op.axis, half, half) for value in operands]
        operands = machine.apply_body(op.body, left, right, values)
        length = half
    results = [value.squeeze(op.axis).reshape(_shape(var)) for value, var in zip(operands, op.result_vars, strict=True)]
    return results if len(results) > 1 else results[0]


@operation("tile_scan")
def _tile_scan(machine: Machine, op: Any, values: Values) -> Any:
    operands = [values[var.name].flip(op.axis) if op.reverse else values[var.name] for var in op.xs]
    length, step = operands[0].shape[op.axis], 1
    while step < length:
        earlier = [value.narrow(op.axis, 0, length - step) for value in operands]
        later = [value.narrow(op.axis, step, length - step) for value in operands]
        joined = machine.apply_body(op.body, earlier, later, values)
        operands = [
            torch.cat((value.narrow(op.axis, 0, step), tail), op.axis)
            for value, tail in zip(operands, joined, strict=True)
        ]
        step *= 2
    if op.reverse:
        operands = [value.flip(op.axis) for value in operands]
    return operands if len(operands) > 1 else operands[0]


@operation("assert")
def _assert(machine: Machine, op: Any, values: Values) -> Any:
    if not bool(values[op.cond.name].all()):
        raise KernelFault(f"assertion failed: {op.message or 'no message'}")


@operation("tile_printf")
def _tile_printf(machine: Machine, op: Any, values: Values) -> Any:
    shown = " ".join(str(values[var.name].tolist()) for var in op.args)
    machine.printed.append(f"{op.format!r} {shown[:1000]}")
