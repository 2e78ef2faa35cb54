"""What each operation of cuTile IR means, in torch. Control flow is the machine's; memory is `memory`'s."""

from __future__ import annotations

from typing import Any

import torch
from cuda.tile import _datatype as dt

from tilewright.interpreter.machine import Machine, Values, dtype_of, operation, shape_of
from tilewright.interpreter.memory import KernelFault, Pointer
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
    return constant(op.value, shape_of(op.result_var), dtype_of(op.result_var))


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


# Shape


@operation("tile_reshape")
def _tile_reshape(machine: Machine, op: Any, values: Values) -> Any:
    return _reshaped(values[op.x.name], lambda value: value.reshape(shape_of(op.result_var)))


@operation("tile_broadcast")
def _tile_broadcast(machine: Machine, op: Any, values: Values) -> Any:
    return _reshaped(values[op.x.name], lambda value: value.expand(shape_of(op.result_var)))


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
    return values[op.x.name][_slices(op, values, shape_of(op.result_var))]


@operation("tile_insert")
def _tile_insert(machine: Machine, op: Any, values: Values) -> Any:
    result = values[op.x.name].clone()
    result[_slices(op, values, shape_of(op.value))] = values[op.value.name]
    return result


@operation("tile_arange")
def _tile_arange(machine: Machine, op: Any, values: Values) -> Any:
    dtype = dtype_of(op.result_var)
    return wrap(torch.arange(shape_of(op.result_var)[0], dtype=held_dtype(dtype)), dtype)


@operation("tile_astype")
def _tile_astype(machine: Machine, op: Any, values: Values) -> Any:
    return convert(values[op.x.name], dtype_of(op.x), dtype_of(op.result_var))


@operation("tile_bitcast")
def _tile_bitcast(machine: Machine, op: Any, values: Values) -> Any:
    source, target = dtype_of(op.x), dtype_of(op.result_var)
    raw = to_memory(values[op.x.name], source).contiguous()
    stored = to_memory(torch.empty(0, dtype=held_dtype(target)), target).dtype
    return from_memory(raw.reshape(-1).view(stored).reshape(raw.shape), target)


# Arithmetic


def _count(machine: Machine, result: torch.Tensor, dtype: DType, flops: int = 1) -> None:
    if is_float(dtype):
        machine.counts.scalar_flops += flops * result.numel()


@operation("raw_cmp")
def _raw_cmp(machine: Machine, op: Any, values: Values) -> Any:
    dtype = dtype_of(op.lhs)
    left, right = (wide(unsigned_order(values[var.name], dtype)) for var in (op.lhs, op.rhs))
    return getattr(torch, op.fn)(left, right)


@operation("raw_binary_bitwise")
def _raw_binary_bitwise(machine: Machine, op: Any, values: Values) -> Any:
    functions = {"and_": torch.bitwise_and, "or_": torch.bitwise_or, "xor": torch.bitwise_xor}
    return functions[op.fn](values[op.lhs.name], values[op.rhs.name])


@operation("raw_bitwise_shift")
def _raw_bitwise_shift(machine: Machine, op: Any, values: Values) -> Any:
    left, right, dtype = values[op.lhs.name], values[op.rhs.name], dtype_of(op.lhs)
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
    dtype = dtype_of(op.result_var)
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
    _count(machine, result, dtype_of(op.result_var), flops=2)
    return result


_CHEAP = {"neg", "abs", "invert", "bitwise_not", "floor", "ceil"}


@operation("unaryop")
def _unaryop(machine: Machine, op: Any, values: Values) -> Any:
    value, dtype = values[op.operand.name], dtype_of(op.result_var)
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
    machine.counts.matrix_flops[str(dtype_of(op.x))] += 2 * left.numel() * right.shape[-1]
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
    results = [
        value.squeeze(op.axis).reshape(shape_of(var)) for value, var in zip(operands, op.result_vars, strict=True)
    ]
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
