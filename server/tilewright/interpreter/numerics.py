"""cuTile's dtypes on torch's CPU: how each is held in registers and in memory, and how values are converted.

In registers uint16, uint32 and uint64 are held in wider (or, for uint64, equally wide) signed integers, tfloat32 and
float4 in float32 rounded to their grid. In memory they have torch's own layout.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from cuda.tile import _datatype as dt

DType: TypeAlias = Any
"""A cuTile dtype (`cuda.tile` ships no types)."""

_HELD = {
    dt.bool_: torch.bool,
    dt.uint8: torch.uint8,
    dt.int8: torch.int8,
    dt.int16: torch.int16,
    dt.int32: torch.int32,
    dt.int64: torch.int64,
    dt.uint16: torch.int32,
    dt.uint32: torch.int64,
    dt.uint64: torch.int64,
    dt.float16: torch.float16,
    dt.bfloat16: torch.bfloat16,
    dt.float32: torch.float32,
    dt.float64: torch.float64,
    dt.tfloat32: torch.float32,
    dt.float8_e4m3fn: torch.float8_e4m3fn,
    dt.float8_e5m2: torch.float8_e5m2,
}

MEMORY_VIEW = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
"""torch dtypes without CPU arithmetic, and the signed ones whose bits stand for them."""

_STORED = {dt.uint16: torch.int16, dt.uint32: torch.int32, dt.uint64: torch.int64}
_MASK = {dt.uint16: 0xFFFF, dt.uint32: 0xFFFFFFFF}
_SIGN = -(2**63)


class UnsupportedOperation(Exception):
    """The kernel uses something that this interpreter does not run."""


def held_dtype(dtype: DType) -> torch.dtype:
    """The torch dtype that holds values of `dtype` in registers."""
    if dtype not in _HELD:
        raise UnsupportedOperation(f"dtype {dtype} is not interpreted by this version")
    return _HELD[dtype]


def is_float(dtype: DType) -> bool:
    return bool(dt.is_float(dtype))


def wrap(value: torch.Tensor, dtype: DType) -> torch.Tensor:
    """Reduce an integer result to the range of its unsigned dtype; other dtypes wrap by themselves."""
    return value & _MASK[dtype] if dtype in _MASK else value


def from_memory(value: torch.Tensor, dtype: DType) -> torch.Tensor:
    """Values as loaded, in the form that registers hold."""
    return wrap(value.to(_HELD[dtype]), dtype) if dtype in _STORED else value


def to_memory(value: torch.Tensor, dtype: DType) -> torch.Tensor:
    """Values as held in registers, in the form that memory has."""
    return value.to(_STORED[dtype]) if dtype in _STORED else value


def wide(value: torch.Tensor) -> torch.Tensor:
    """A value in a dtype that torch can compute with: 8-bit floats go to float32."""
    return value.to(torch.float32) if value.dtype.is_floating_point and value.dtype.itemsize == 1 else value


def unsigned_order(value: torch.Tensor, dtype: DType) -> torch.Tensor:
    """A uint64 value mapped so that signed comparison orders it rightly; the map is its own inverse."""
    return value ^ _SIGN if dtype == dt.uint64 else value


def _round_tfloat32(value: torch.Tensor) -> torch.Tensor:
    bits = value.contiguous().view(torch.int32)
    rounded = ((bits + ((bits >> 13) & 1) + 0xFFF) & ~0x1FFF).view(torch.float32)
    return torch.where(torch.isfinite(value), rounded, value)


def convert(value: torch.Tensor, source: DType, target: DType) -> torch.Tensor:
    """`value` of dtype `source` as `target`: floats round to nearest even, float to integer truncates."""
    if source == target:
        return value
    held = held_dtype(target)
    if source == dt.uint64 and is_float(target):
        exact = value.to(torch.float64)
        return convert(torch.where(exact < 0, exact + 2.0**64, exact), dt.float64, target)
    if target == dt.bool_:
        return wide(value) != 0
    if target == dt.tfloat32:
        return _round_tfloat32(value.to(torch.float32))
    if is_float(source) and not is_float(target):
        exact = value.to(torch.float64).trunc()
        if target == dt.uint64:
            return torch.where(exact >= 2.0**63, (exact - 2.0**64).to(torch.int64), exact.to(torch.int64))
        return wrap(exact.to(torch.int64), target).to(held)
    if is_float(target) and held.itemsize == 1:
        return value.to(torch.float32).to(held)
    return wrap(value.to(torch.int64 if target in _MASK else held), target).to(held)


def constant(value: object, shape: tuple[int, ...], dtype: DType) -> torch.Tensor:
    """A tile that holds one Python value, or a tuple of them in row-major order."""
    exact, exact_dtype = (torch.float64, dt.float64) if is_float(dtype) else (torch.int64, dt.int64)
    if isinstance(value, tuple):
        return convert(torch.tensor(value, dtype=exact).reshape(shape), exact_dtype, dtype)
    assert isinstance(value, bool | int | float)
    if dtype == dt.uint64 and value >= 2**63:
        value -= 2**64
    if held_dtype(dtype).itemsize == 1 and is_float(dtype):
        return torch.full(shape, float(value)).to(held_dtype(dtype))
    if dtype == dt.tfloat32:
        return convert(torch.full(shape, float(value)), dt.float32, dtype)
    return torch.full(shape, value, dtype=held_dtype(dtype))
