"""Bfloat16 and float8 in Triton's interpreter, which keeps them as bits and computes on those as if they were integers.

Here each operation is done in float32 and rounded once to the nearest, as a GPU does. Conversions to float8 saturate.
A maximum, a minimum and a clamp of any float drop NaN, unless they are told to propagate it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, ReduceOps, ScanOps, TensorHandle, _ir

NARROW = {
    tl.bfloat16: torch.bfloat16,
    tl.float8e4nv: torch.float8_e4m3fn,
    tl.float8e5: torch.float8_e5m2,
    tl.float8e4b8: torch.float8_e4m3fnuz,
    tl.float8e5b16: torch.float8_e5m2fnuz,
}
NATIVE = {tl.float16: np.float16, tl.float32: np.float32, tl.float64: np.float64}


def widened(handle: Any) -> Any:
    """The same values in float32, where they are bits of a narrow type."""
    dtype = NARROW.get(handle.dtype.scalar)
    if dtype is None or handle.data.dtype.kind != "u":  # a comparison's result keeps the type of what was compared
        return handle
    bits = torch.from_numpy(np.ascontiguousarray(handle.data).view(f"i{handle.data.itemsize}"))
    return TensorHandle(bits.view(dtype).to(torch.float32).numpy().reshape(handle.data.shape), tl.float32)


def narrowed(data: Any, dtype: Any) -> Any:
    """Values as bits of a narrow type; truth values, and those of another type, as they are."""
    target = NARROW.get(dtype.scalar)
    if target is None or data.dtype.kind == "b":
        return TensorHandle(data, dtype.scalar)
    values = torch.from_numpy(np.array(data, dtype=np.float32))
    if target.itemsize == 1:
        values = values.clamp(-torch.finfo(target).max, torch.finfo(target).max)
    kept = values.to(target).view(torch.int8 if target.itemsize == 1 else torch.int16).numpy()
    return TensorHandle(kept.view(f"u{target.itemsize}"), dtype.scalar)


def install() -> None:
    """Have Triton's interpreter compute so in this process."""
    builder = InterpreterBuilder
    for name in ("binary_op", "unary_op", "ternary_op", "create_fma", "create_erf", "create_rsqrt", "create_dot"):
        setattr(builder, name, _in_float32(getattr(builder, name)))
    builder.cast_impl = _cast(builder.cast_impl)
    builder.create_fp_to_fp = _convert(builder.create_fp_to_fp)
    builder.create_atomic_rmw = _one_by_one(builder.create_atomic_rmw)
    builder.create_maxnumf = lambda self, one, other: self.binary_op(one, other, np.fmax)
    builder.create_minnumf = lambda self, one, other: self.binary_op(one, other, np.fmin)
    builder.create_clampf = lambda self, value, low, high, nans: self.ternary_op(
        value, low, high, np.clip if nans == _ir.PROPAGATE_NAN.ALL else _clamped
    )
    builder.get_bf16 = lambda self, value: narrowed(np.array([value]), tl.bfloat16)
    for owner, name in ((ReduceOps, "sum"), (ReduceOps, "min_max"), (ScanOps, "cumsum"), (ScanOps, "cumprod")):
        setattr(owner, name, _reduced(getattr(owner, name)))


def _clamped(value: Any, low: Any, high: Any) -> Any:
    return np.fmin(np.fmax(value, low), high)


def _in_float32(operation: Callable[..., Any]) -> Callable[..., Any]:
    def computed(self: Any, *arguments: Any) -> Any:
        wide = [widened(one) if isinstance(one, TensorHandle) else one for one in arguments]
        if all(one is other for one, other in zip(wide, arguments, strict=True)):
            return operation(self, *arguments)
        last = [one for one in arguments if isinstance(one, TensorHandle)][-1]
        return narrowed(operation(self, *wide).data, last.dtype)

    return computed


def _cast(cast: Callable[..., Any]) -> Callable[..., Any]:
    def converted(self: Any, source: Any, target: Any) -> Any:
        wide = widened(source)
        if target.scalar in NARROW:
            return source if source.dtype.scalar == target.scalar else narrowed(wide.data, target)
        return cast(self, wide, target)

    return converted


def _convert(convert: Callable[..., Any]) -> Callable[..., Any]:
    def converted(self: Any, source: Any, target: Any, rounding: Any) -> Any:
        known = {*NARROW, *NATIVE}
        if rounding == _ir.ROUNDING_MODE.RTZ or not {source.dtype.scalar, target.scalar} <= known:
            return convert(self, source, target, rounding)
        wide = widened(source)
        if target.scalar in NARROW:
            return narrowed(wide.data, target)
        return TensorHandle(wide.data.astype(NATIVE[target.scalar]), target.scalar)

    return converted


def _one_by_one(atomic: Callable[..., Any]) -> Callable[..., Any]:
    """The interpreter's own atomics know no narrow floats. Blocks run one after the other here, so that an element can
    be loaded, changed and stored."""
    changes = {_ir.ATOMIC_OP.FADD: np.add, _ir.ATOMIC_OP.MAX: np.maximum, _ir.ATOMIC_OP.MIN: np.minimum}

    def changed(self: Any, kind: Any, pointer: Any, value: Any, mask: Any, *rest: Any) -> Any:
        dtype = value.dtype.scalar
        if dtype not in NARROW or kind not in changes:
            return atomic(self, kind, pointer, value, mask, *rest)
        places, bits, inside = np.broadcast_arrays(pointer.data, value.data, mask.data)
        before = np.zeros_like(bits)
        for index in np.argwhere(inside):
            at = tuple(index)
            place = TensorHandle(places[at].reshape(1), pointer.dtype)
            old = self.create_load(place, None, None, False)
            new = self.binary_op(old, TensorHandle(bits[at].reshape(1), dtype), changes[kind])
            self.create_store(place, new, None, None)
            before[at] = old.data[0]
        return TensorHandle(before, dtype)

    return changed


def _reduced(reduction: Callable[..., Any]) -> Callable[..., Any]:
    def computed(self: Any, given: Any, *arguments: Any, **named: Any) -> Any:
        tensor = given[0] if isinstance(given, tuple) else given
        wide = widened(tensor.handle)
        if wide is tensor.handle:
            return reduction(self, given, *arguments, **named)
        found = reduction(self, self.to_tensor(wide.data, tl.float32), *arguments, **named)
        return _each(found, tensor.dtype)

    return computed


def _each(found: Any, dtype: Any) -> Any:
    if isinstance(found, tuple | list):
        return type(found)(_each(one, dtype) for one in found)
    if found.dtype != tl.float32:  # an index
        return found
    kind = tl.block_type(dtype, [*found.shape]) if found.type.is_block() else dtype
    return tl.core.tensor(narrowed(found.handle.data, dtype), kind)
