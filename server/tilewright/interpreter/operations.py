"""What each operation of cuTile IR means, in torch. Control flow is the machine's; memory is `memory`'s.

Floats round to nearest, and subnormal ones are kept, whatever an operation is told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from cuda.tile import _datatype as dt

from tilewright.interpreter.machine import Machine, Step, dtype_of, operation, prepared, shape_of
from tilewright.interpreter.numerics import (
    DType,
    UnsupportedOperation,
    constant,
    convert,
    divided,
    from_memory,
    held_dtype,
    is_float,
    root,
    to_memory,
    unsigned_order,
    wrap,
)
from tilewright.interpreter.values import Pointer, Values

_CONVERSION = re.compile(r"%(?P<spec>[-+ #0]*\d*(?:\.\d*)?)(?:hh|h|ll|l|j|z|t|L|q)?(?P<kind>[diouxXeEfFgGaAc%])")


# Tokens order memory accesses between threads; one block at a time is ordered already.
@operation("make_token", "join_tokens", "grid_dependency_control_wait", "grid_dependency_control_launch_dependents")
def _nothing(machine: Machine, op: Any, values: Values) -> Any:
    return None


@operation("make_dummy")
def _make_dummy(machine: Machine, op: Any, values: Values) -> Any:
    ty = op.result_var.get_type()
    return torch.zeros((1, *ty.shape), dtype=held_dtype(ty.dtype)) if hasattr(ty, "dtype") else None


@prepared("typed_const")
def _typed_const(op: Any) -> Step:
    made = constant(op.value, shape_of(op.result_var), dtype_of(op.result_var))
    return lambda machine, values: made


@operation("assign")
def _assign(machine: Machine, op: Any, values: Values) -> Any:
    return values[op.value.name]


@operation("assume_div_by")
def _assume_div_by(machine: Machine, op: Any, values: Values) -> Any:
    value = values[op.x.name]
    if isinstance(value, torch.Tensor) and bool((wrong := value % op.divisor != 0).any()):
        found = int(value[wrong].reshape(-1)[0])
        machine.fault(f"{found} is assumed to be a multiple of {op.divisor}", _blocks(wrong), "assumption")
    return value


@operation("assume_bounded")
def _assume_bounded(machine: Machine, op: Any, values: Values) -> Any:
    return values[op.x.name]


def _blocks(elements: torch.Tensor) -> torch.Tensor:
    """In which blocks something holds for any element."""
    return elements.reshape(elements.shape[0], -1).any(1)


@operation("tile_bid")
def _tile_bid(machine: Machine, op: Any, values: Values) -> Any:
    return machine.group.blocks[:, op.axis].to(torch.int32)


@operation("tile_num_blocks")
def _tile_num_blocks(machine: Machine, op: Any, values: Values) -> Any:
    return torch.tensor([machine.grid[op.axis]], dtype=torch.int32)


@prepared("tile_astype")
def _tile_astype(op: Any) -> Step:
    name, source, target = op.x.name, dtype_of(op.x), dtype_of(op.result_var)
    return lambda machine, values: convert(values[name], source, target)


@operation("tile_bitcast")
def _tile_bitcast(machine: Machine, op: Any, values: Values) -> Any:
    source, target = dtype_of(op.x), dtype_of(op.result_var)
    raw = to_memory(values[op.x.name], source).contiguous()
    stored = to_memory(torch.empty(0, dtype=held_dtype(target)), target).dtype
    return from_memory(raw.reshape(-1).view(stored).reshape(raw.shape), target)


# Arithmetic


def _elements(machine: Machine, result: torch.Tensor) -> int:
    """Elements of a tile over all blocks, also where one stands for all."""
    return result.numel() // result.shape[0] * machine.group.size


@prepared("raw_cmp")
def _raw_cmp(op: Any) -> Step:
    left, right, dtype, function = op.lhs.name, op.rhs.name, dtype_of(op.lhs), getattr(torch, op.fn)
    if dtype != dt.uint64:
        return lambda machine, values: function(values[left], values[right])
    return lambda machine, values: function(unsigned_order(values[left], dtype), unsigned_order(values[right], dtype))


@prepared("raw_binary_bitwise")
def _raw_binary_bitwise(op: Any) -> Step:
    left, right = op.lhs.name, op.rhs.name
    function = {"and_": torch.bitwise_and, "or_": torch.bitwise_or, "xor": torch.bitwise_xor}[op.fn]
    return lambda machine, values: function(values[left], values[right])


@operation("raw_bitwise_shift")
def _raw_bitwise_shift(machine: Machine, op: Any, values: Values) -> Any:
    left, right, dtype = values[op.lhs.name], values[op.rhs.name], dtype_of(op.lhs)
    if op.fn == "lshift":
        return wrap(left << right, dtype)
    if dtype == dt.uint64:  # held signed: clear what the arithmetic shift brought in
        return torch.where(right == 0, left, (left >> right) & ((1 << (64 - right).clamp(max=63)) - 1))
    return left >> right


def _extremum(op: Any, left: torch.Tensor, right: torch.Tensor, dtype: DType) -> torch.Tensor:
    if not is_float(dtype):
        function = torch.maximum if op.fn == "max" else torch.minimum
        return unsigned_order(function(unsigned_order(left, dtype), unsigned_order(right, dtype)), dtype)
    if op.propagate_nan:
        return (torch.maximum if op.fn == "max" else torch.minimum)(left, right)
    return (torch.fmax if op.fn == "max" else torch.fmin)(left, right)


@prepared("raw_binary_arith")
def _raw_binary_arith(op: Any) -> Step:
    one, other = op.lhs.name, op.rhs.name
    function, special = _arithmetic(op), op.fn == "truediv"  # a reciprocal, and what corrects it
    counts = is_float(dtype_of(op.result_var))

    def step(machine: Machine, values: Values) -> torch.Tensor:
        result = function(machine, values[one], values[other])
        if counts:
            machine.counts.scalar_flops += _elements(machine, result)
        if special:
            machine.counts.special_functions += _elements(machine, result)
        return result

    return step


def _arithmetic(op: Any) -> Callable[[Machine, torch.Tensor, torch.Tensor], torch.Tensor]:
    """What a binary operation makes of two values."""
    dtype, name = dtype_of(op.result_var), op.fn
    exact = torch.div if name == "truediv" else getattr(torch, name, torch.floor_divide)
    match name:
        case "add" | "sub" | "mul":
            return lambda _, left, right: wrap(exact(left, right), dtype)
        case "max" | "min":
            return lambda _, left, right: _extremum(op, left, right, dtype)
        case "truediv" | "pow" | "atan2":
            return lambda _, left, right: exact(left, right)
        case "floordiv" if is_float(dtype):
            return lambda _, left, right: torch.floor(left / right)
        case "c_mod" if is_float(dtype):
            return lambda _, left, right: torch.fmod(left, right)
        case "floordiv" | "cdiv" | "truncdiv" | "c_mod":
            return lambda machine, left, right: _integer_division(machine, name, left, right, dtype)
    raise UnsupportedOperation(f"arithmetic {name!r} is not interpreted by this version")


def _integer_division(
    machine: Machine, name: str, left: torch.Tensor, right: torch.Tensor, dtype: DType
) -> torch.Tensor:
    if not right.all():
        zero = right == 0
        machine.fault("integer division by zero", _blocks(zero), "division_by_zero")
        right = torch.where(zero, 1, right)
    return divided(name, left, right, dtype)


@operation("raw_fpowi")
def _raw_fpowi(machine: Machine, op: Any, values: Values) -> Any:
    return torch.pow(values[op.base.name], values[op.exponent.name])


@prepared("raw_where")
def _raw_where(op: Any) -> Step:
    which, one, other = op.cond.name, op.x.name, op.y.name

    def step(machine: Machine, values: Values) -> Any:
        condition, yes, no = values[which], values[one], values[other]
        if not isinstance(yes, Pointer):
            return torch.where(condition, yes, no)
        if yes.buffer.data_ptr() != no.buffer.data_ptr():
            if not bool((condition == condition.reshape(-1)[0]).all()):
                raise UnsupportedOperation("a pointer that leads to different tensors within a tile or between blocks")
            return yes if bool(condition.reshape(-1)[0]) else no
        offset = torch.where(condition, yes.offset, no.offset)
        return replace(yes, offset=offset, low=min(yes.low, no.low), high=max(yes.high, no.high))

    return step


@prepared("fma")
def _fma(op: Any) -> Step:
    names, dtype = (op.lhs.name, op.rhs.name, op.acc.name), dtype_of(op.result_var)

    def step(machine: Machine, values: Values) -> torch.Tensor:
        left, right, acc = (values[name] for name in names)
        exact = torch.addcmul(acc.double(), left.double(), right.double())
        result = convert(exact, dt.float64, dtype)
        machine.counts.scalar_flops += 2 * _elements(machine, result)
        return result

    return step


_CHEAP = {"neg", "abs", "invert", "bitwise_not", "floor", "ceil"}


@prepared("unaryop")
def _unaryop(op: Any) -> Step:
    name, dtype = op.operand.name, dtype_of(op.result_var)
    match op.fn:
        case "neg":
            return lambda machine, values: wrap(-values[name], dtype)
        case "invert" | "bitwise_not":
            return lambda machine, values: wrap(~values[name], dtype)
        case "abs" if dtype == dt.bool_:
            return lambda machine, values: values[name]
    function, cheap, counts = getattr(torch, op.fn), op.fn in _CHEAP, is_float(dtype)

    def step(machine: Machine, values: Values) -> torch.Tensor:
        value = values[name]
        if op.fn in ("sqrt", "rsqrt"):
            result = root(value, dtype, op.fn == "rsqrt")
        elif value.dtype in (torch.float16, torch.bfloat16):
            result = function(value.float()).to(value.dtype)
        else:
            result = function(value)
        if not cheap:
            machine.counts.special_functions += _elements(machine, result)
        elif counts:
            machine.counts.scalar_flops += _elements(machine, result)
        return result

    return step


def _product(machine: Machine, left: torch.Tensor, right: torch.Tensor, acc: torch.Tensor, dtype: DType) -> Any:
    flops = 2 * left[0].numel() * right.shape[-1] * machine.group.size
    machine.counts.matrix_flops[str(dtype)] += flops
    if machine.sampled:  # which counts and keeps no results: a persistent block's products would take minutes
        blocks = max(len(left), len(right), len(acc))
        return acc.expand(blocks, *acc.shape[1:])
    if not left.dtype.is_floating_point:
        return (torch.matmul(left.double(), right.double()).to(torch.int64) + acc).to(acc.dtype)
    compute = torch.float64 if left.dtype == torch.float64 else torch.float32
    return (torch.matmul(left.to(compute), right.to(compute)) + acc.to(compute)).to(acc.dtype)


@operation("tile_mma")
def _tile_mma(machine: Machine, op: Any, values: Values) -> Any:
    left, right, acc = (values[var.name] for var in (op.x, op.y, op.acc))
    return _product(machine, left, right, acc, dtype_of(op.x))


@operation("tile_mma_scaled")
def _tile_mma_scaled(machine: Machine, op: Any, values: Values) -> Any:
    """Each block of K has one scale a row of x and a column of y (OCP Microscaling Formats 1.0)."""
    left, left_scale, right, right_scale, acc = (
        values[var.name] for var in (op.x, op.x_scale, op.y, op.y_scale, op.acc)
    )
    left_block, right_block = left.shape[-1] // left_scale.shape[-1], right.shape[-2] // right_scale.shape[-2]
    left = left.double() * left_scale.double().repeat_interleave(left_block, -1)
    right = right.double() * right_scale.double().repeat_interleave(right_block, -2)
    return _product(machine, left, right, acc.double(), dtype_of(op.x)).to(acc.dtype)


@operation("tile_reduce")
def _tile_reduce(machine: Machine, op: Any, values: Values) -> Any:
    operands = _same_blocks([values[var.name] for var in op.xs])
    axis = op.axis + 1
    length = operands[0].shape[axis]
    machine.counts.reductions[operands[0].numel() // len(operands[0]) // length] += machine.group.size
    while length > 1:
        left, right = zip(*(value.chunk(2, axis) for value in operands), strict=True)
        operands = machine.apply_body(op.body, left, right, values)
        length //= 2
    results = [
        value.reshape(value.shape[0], *shape_of(var)) for value, var in zip(operands, op.result_vars, strict=True)
    ]
    return results if len(results) > 1 else results[0]


def _same_blocks(operands: list[torch.Tensor]) -> list[torch.Tensor]:
    if len(operands) == 1:
        return operands
    blocks = max(value.shape[0] for value in operands)
    return [value.expand(blocks, *value.shape[1:]) for value in operands]


@operation("tile_scan")
def _tile_scan(machine: Machine, op: Any, values: Values) -> Any:
    axis = op.axis + 1
    given = _same_blocks([values[var.name] for var in op.xs])
    operands = [value.flip(axis) if op.reverse else value for value in given]
    length, step = operands[0].shape[axis], 1
    while step < length:
        earlier = [value.narrow(axis, 0, length - step) for value in operands]
        later = [value.narrow(axis, step, length - step) for value in operands]
        joined = machine.apply_body(op.body, earlier, later, values)
        operands = [
            torch.cat((value.narrow(axis, 0, step), tail), axis) for value, tail in zip(operands, joined, strict=True)
        ]
        step *= 2
    if op.reverse:
        operands = [value.flip(axis) for value in operands]
    return operands if len(operands) > 1 else operands[0]


@operation("assert")
def _assert(machine: Machine, op: Any, values: Values) -> Any:
    condition = values[op.cond.name]
    if not bool(condition.all()):
        failed = _blocks(~condition)
        first, what = int(failed.to(torch.int8).argmax()), f"assertion failed: {op.message or 'no message'}"
        line = f"{op.loc}: {what} (block {machine.group.shown(first)})\n"
        machine.printed.setdefault(int(machine.group.numbers[first]), []).append(line)
        machine.fault(what, failed, "assertion")
    return ()


@operation("tile_printf")
def _tile_printf(machine: Machine, op: Any, values: Values) -> Any:
    arguments = [values[var.name] for var in op.args]
    for position, number in enumerate(machine.group.numbers.tolist()):
        own = iter([value[min(position, value.shape[0] - 1)].tolist() for value in arguments])
        text = _CONVERSION.sub(partial(_formatted, own), op.format)
        machine.printed.setdefault(number, []).append(text)
    return ()


def _formatted(arguments: Iterator[Any], found: re.Match[str]) -> str:
    """What a conversion of a C format makes of the next argument."""
    return "%" if found["kind"] == "%" else _nested(next(arguments), f"%{found['spec']}{found['kind']}")


def _nested(value: Any, form: str) -> str:
    """A number, or the numbers of a tile in brackets, an axis at a time."""
    return f"[{', '.join(_nested(item, form) for item in value)}]" if isinstance(value, list) else str(form % value)
