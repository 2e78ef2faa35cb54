"""cuTile's dtypes on torch's CPU: how each is held in registers and in memory, and how values are converted.

In registers uint16, uint32 and uint64 are held in wider (or, for uint64, equally wide) signed integers; tfloat32 and
all floats of 8 bits or fewer in float32, rounded to their grid. In memory they have torch's own layout, floats of 8
bits as bytes; float4 exists in registers only, and as bytes that hold two.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
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
    dt.float8_e4m3fn: torch.float32,
    dt.float8_e5m2: torch.float32,
    dt.float8_e8m0fnu: torch.float32,
    dt.float4_e2m1fn: torch.float32,
}

MEMORY_VIEW = {
    torch.uint16: torch.int16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
    torch.float8_e4m3fn: torch.uint8,
    torch.float8_e5m2: torch.uint8,
    torch.float8_e8m0fnu: torch.uint8,
}
"""torch dtypes without CPU arithmetic, and those whose bits stand for them."""

_STORED = {dt.uint16: torch.int16, dt.uint32: torch.int32, dt.uint64: torch.int64}
_MASK = {dt.uint16: 0xFFFF, dt.uint32: 0xFFFFFFFF}
_SIGN = -(2**63)
_TORCH_BYTES = {
    dt.float8_e4m3fn: torch.float8_e4m3fn,
    dt.float8_e5m2: torch.float8_e5m2,
    dt.float8_e8m0fnu: torch.float8_e8m0fnu,
}


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


_POSITIVE = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
_FLOAT4 = torch.cat((_POSITIVE, -_POSITIVE))
"""The values of float4_e2m1fn by their codes (OCP MX 1.0)."""


def _code(value: torch.Tensor) -> torch.Tensor:
    """The code of the nearest value of float4_e2m1fn, ties to the even code, saturating; as uint8."""
    magnitude, middles = value.float().abs(), (_POSITIVE[1:] + _POSITIVE[:-1]) / 2
    low = torch.bucketize(magnitude.contiguous(), middles)
    tie = (low < len(middles)) & (magnitude == middles[low.clamp(max=len(middles) - 1)]) & (low % 2 == 1)
    return (low + tie.to(low.dtype) + 8 * torch.signbit(value).to(low.dtype)).to(torch.uint8)


def from_memory(value: torch.Tensor, dtype: DType) -> torch.Tensor:
    """Values as loaded, in the form that registers hold."""
    if dtype in _TORCH_BYTES:
        return value.contiguous().view(_TORCH_BYTES[dtype]).to(torch.float32)
    return wrap(value.to(_HELD[dtype]), dtype) if dtype in _STORED else value


def to_memory(value: torch.Tensor, dtype: DType) -> torch.Tensor:
    """Values as held in registers, in the form that memory has."""
    if dtype in _TORCH_BYTES:
        return value.to(_TORCH_BYTES[dtype]).view(torch.uint8)
    return value.to(_STORED[dtype]) if dtype in _STORED else value


def packed(value: torch.Tensor, dtype: DType) -> torch.Tensor:
    """The bytes of a tile, (blocks, bytes), the first element in the lowest bits."""
    if dtype == dt.float4_e2m1fn:
        codes = _code(value)
        return codes[:, 0::2] | codes[:, 1::2] << 4
    raw = to_memory(value, dtype).contiguous()
    return raw.view(torch.uint8) if raw.dtype != torch.uint8 else raw


def unpacked(value: torch.Tensor, dtype: DType) -> torch.Tensor:
    """The elements that a tile of bytes, (blocks, bytes), holds."""
    if dtype == dt.float4_e2m1fn:
        return _FLOAT4[torch.stack((value & 15, value >> 4), 2).reshape(value.shape[0], -1).to(torch.int64)]
    stored = to_memory(torch.empty(0, dtype=held_dtype(dtype)), dtype).dtype
    return from_memory(value.contiguous().view(stored), dtype)


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
        return value != 0
    if target == dt.tfloat32:
        return _round_tfloat32(value.to(torch.float32))
    if target in _TORCH_BYTES:
        return from_memory(value.to(torch.float32).to(_TORCH_BYTES[target]).view(torch.uint8), target)
    if target == dt.float4_e2m1fn:
        return _FLOAT4[_code(value).to(torch.int64)]
    if is_float(source) and not is_float(target):
        exact = value.to(torch.float64).trunc()
        if target == dt.uint64:
            return torch.where(exact >= 2.0**63, (exact - 2.0**64).to(torch.int64), exact.to(torch.int64))
        return wrap(exact.to(torch.int64), target).to(held)
    return wrap(value.to(torch.int64 if target in _MASK else held), target).to(held)


def root(value: torch.Tensor, dtype: DType, reciprocal: bool) -> torch.Tensor:
    """The square root, or 1 over it, correctly rounded for float32 and smaller: torch's own may be a vector library's,
    which is not."""
    exact = value.double().sqrt()
    return convert(1 / exact if reciprocal else exact, dt.float64, dtype)


def divided(function: str, left: torch.Tensor, right: torch.Tensor, dtype: DType) -> torch.Tensor:
    """The integer divisions of cuTile (floordiv, cdiv, truncdiv, c_mod: the remainder with the dividend's sign), for
    divisors other than zero."""
    if dtype == dt.uint64:
        one, other = (
            torch.broadcast_tensors(left, right)[number].contiguous().numpy().view(np.uint64) for number in (0, 1)
        )
        quotient = one // other
        if function == "c_mod":
            quotient = one - quotient * other
        elif function == "cdiv":
            quotient = quotient + (one % other != 0)
        return torch.from_numpy(quotient.view(np.int64))
    wide_left, wide_right = left.to(torch.int64), right.to(torch.int64)
    match function:
        case "floordiv":
            result = torch.div(wide_left, wide_right, rounding_mode="floor")
        case "cdiv":
            result = -torch.div(-wide_left, wide_right, rounding_mode="floor")
        case "truncdiv":
            result = torch.div(wide_left, wide_right, rounding_mode="trunc")
        case _:
            result = torch.fmod(wide_left, wide_right)
    return wrap(result, dtype).to(left.dtype)


def constant(value: object, shape: tuple[int, ...], dtype: DType) -> torch.Tensor:
    """A tile that holds one Python value, or a tuple of them in row-major order, for all blocks: (1, *shape)."""
    exact, exact_dtype = (torch.float64, dt.float64) if is_float(dtype) else (torch.int64, dt.int64)
    if isinstance(value, tuple):
        return convert(torch.tensor(value, dtype=exact).reshape(1, *shape), exact_dtype, dtype)
    assert isinstance(value, bool | int | float)
    if dtype == dt.uint64 and value >= 2**63:
        value -= 2**64
    if is_float(dtype):
        one = convert(torch.tensor([float(value)], dtype=exact), exact_dtype, dtype)
    else:
        one = torch.tensor([value], dtype=held_dtype(dtype))
    return one.reshape(1, *(1 for _ in shape)).expand(1, *shape)
