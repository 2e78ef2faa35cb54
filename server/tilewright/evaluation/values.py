"""Values for a case's floating-point inputs beside the task's own random draw, and other strides for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from tilewright.task import Values

Inputs = dict[str, Any]

RUNGS = 3
"""Every class has so many strengths, the strongest first; a referee takes the first that suits a task."""


def strengths(inputs: Inputs, values: Values, generator: torch.Generator) -> list[tuple[int, str | None]]:
    """The rungs of a class, the strongest first, each with the one tensor that it is for, or None for all.

    The product of two tensors of tiny values is nothing in their own dtype. So one tensor alone is as tiny, the others
    as the task draws them, where float32 holds what is subnormal in that tensor's dtype: in a random order.
    """
    if values is Values.DRAWN:
        return []
    alone = [name for name, value in inputs.items() if values is Values.TINY and _narrow(value)]
    order = torch.randperm(len(alone), generator=generator, device=generator.device).tolist()
    return [(0, None), *((0, alone[place]) for place in order), *((rung, None) for rung in range(1, RUNGS))]


def of_class(inputs: Inputs, values: Values, rung: int, generator: torch.Generator, only: str | None = None) -> Inputs:
    """The inputs with every floating-point tensor's values (of the tensor `only`, if named) replaced; shapes, dtypes,
    strides and all else stay.

    A tensor whose elements share memory (stride 0) stays too. `generator` is on the tensors' device.

    In one of two draws the spikes of all tensors meet: they lie at one coordinate of every axis, so that any
    contraction multiplies them. Elsewhere they meet by chance, which is rare on long axes.
    """
    meeting = _meeting(generator) if values is Values.SPIKE else None
    return {
        name: _replaced(value, values, rung, generator, meeting) if only in (None, name) else value
        for name, value in inputs.items()
    }


def other_strides(inputs: Inputs, transposed: bool) -> Inputs:
    """The same values in other strides: the last two axes' storage swapped, or every second element of a longer row."""
    return {name: _restrided(value, transposed) for name, value in inputs.items()}


def subnormals_flushed(inputs: Inputs) -> Inputs | None:
    """The inputs as float32 arithmetic that flushes subnormals reads them; None where that changes nothing."""
    smallest = torch.finfo(torch.float32).tiny
    changed = False
    flushed: Inputs = {}
    for name, value in inputs.items():
        flushed[name] = value
        if isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
            wide = value.to(torch.float64)
            small = (wide != 0) & (wide.abs() < smallest)
            if bool(small.any()):
                changed = True
                flushed[name] = torch.where(small, 0.0, wide)
    return flushed if changed else None


def in_tfloat32(inputs: Inputs) -> Inputs:
    """The inputs with float32 values rounded to tfloat32's 10 bits of mantissa, to the nearest and ties to even."""
    rounded = dict(inputs)
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor) and value.dtype is torch.float32:
            bits = value.view(torch.int32)
            rounded[name] = ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)
    return rounded


def nudged(
    inputs: Inputs, relative: float, absolute: float, generator: torch.Generator, only: str | None = None
) -> Inputs:
    """The inputs in float64, each element (of the tensor `only`, if named) up or down by `relative` of itself, and by
    up to `absolute`."""
    moved: Inputs = {}
    for name, value in inputs.items():
        moved[name] = value
        if isinstance(value, torch.Tensor) and value.dtype.is_floating_point and only in (None, name):
            signs = torch.randint(0, 2, value.shape, generator=generator, device=value.device, dtype=torch.int8)
            moved[name] = value.to(torch.float64) * (1.0 + relative * (2.0 * signs - 1.0))
            if absolute:
                draw = torch.rand(value.shape, generator=generator, device=value.device, dtype=torch.float64)
                moved[name] += absolute * (2.0 * draw - 1.0)
    return moved


def _narrow(value: Any) -> bool:
    """Whether it is a tensor of floats whose subnormals are normal numbers in float32."""
    if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
        return False
    info = torch.finfo(value.dtype)
    return float(info.tiny) * float(info.eps) > torch.finfo(torch.float32).tiny


def _meeting(generator: torch.Generator) -> int | None:
    """The coordinate at which the spikes of all tensors meet, to be taken modulo an axis's length; None: anywhere."""
    drawn = int(torch.randint(0, 2**31, (1,), generator=generator, device=generator.device))
    return drawn // 2 if drawn % 2 else None


def _replaced(value: Any, values: Values, rung: int, generator: torch.Generator, meeting: int | None) -> Any:
    if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point or not value.numel():
        return value
    if any(stride == 0 and size > 1 for size, stride in zip(value.shape, value.stride(), strict=True)):
        return value
    made = _made(tuple(value.shape), value.dtype, values, rung, generator, meeting)
    made = made if torch.finfo(value.dtype).min < 0 else made.abs()  # scales, which have no sign
    limit = float(torch.finfo(value.dtype).max) / 2
    result = value.clone() if value.is_contiguous() else _like(value)
    result.copy_(made.clamp(-limit, limit).to(value.dtype))
    return result


def _made(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    values: Values,
    rung: int,
    generator: torch.Generator,
    meeting: int | None,
) -> torch.Tensor:
    """Float64 values of a class for a tensor of `dtype`."""
    info = torch.finfo(dtype)
    top, bottom = math.log2(float(info.max)), math.log2(float(info.tiny))
    device = generator.device

    def normal(size: tuple[int, ...] = shape) -> torch.Tensor:
        return torch.randn(size, generator=generator, device=device, dtype=torch.float64)

    match values:
        case Values.ZEROS:
            return torch.zeros(shape, dtype=torch.float64, device=device)
        case Values.ONES:
            return torch.ones(shape, dtype=torch.float64, device=device)
        case Values.LARGE:
            return normal() * math.exp2(min(20.0, top / 2) / (1, 2, 4)[rung])
        case Values.TINY:  # the strongest straddles the least normal number
            spread = torch.rand(shape, generator=generator, device=device, dtype=torch.float64) * 8 - 4
            exponent = bottom / (1, 3, 6)[rung] + spread
            return normal() * torch.exp2(exponent)
        case Values.INTEGERS:
            bound = min((64, 8, 2)[rung], int(2 / info.eps))
            drawn = torch.randint(-bound, bound + 1, shape, generator=generator, device=device)
            return drawn.to(torch.float64)
        case Values.OFFSET:
            return normal() + 8.0
        case Values.SPIKE:
            made = normal() * 0.05
            height = math.exp2(min(10.0, top / 3) / (1, 2, 4)[rung])
            if meeting is None:
                made.view(-1)[torch.randint(0, made.numel(), (1,), generator=generator, device=device)] = height
            else:
                made[tuple(meeting % size for size in shape)] = height
            return made
        case _:
            return _cancelling(shape, normal)


def _cancelling(shape: tuple[int, ...], normal: Callable[[tuple[int, ...]], torch.Tensor]) -> torch.Tensor:
    """Neighbours on the last axis nearly cancel, neighbours on the one before nearly agree: so do sums over the last
    axis, and matrix products over it and the axis before the last of the other factor."""
    half = tuple(-(-size // 2) if axis >= len(shape) - 2 else size for axis, size in enumerate(shape))
    made = normal(half)
    for axis in range(max(len(shape) - 2, 0), len(shape)):
        made = made.repeat_interleave(2, dim=axis).narrow(axis, 0, shape[axis])
    if shape:
        made = made * (1.0 - 2.0 * (torch.arange(shape[-1], device=made.device) % 2))
    return made * (1.0 + normal(shape) / 32)


def _like(value: torch.Tensor) -> torch.Tensor:
    """A tensor of the same strides with memory of its own, gaps included."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    return torch.zeros(span, dtype=value.dtype, device=value.device).as_strided(value.shape, value.stride())


def _restrided(value: Any, transposed: bool) -> Any:
    if not isinstance(value, torch.Tensor) or not value.numel() or not value.ndim:
        return value
    if transposed and value.ndim > 1:
        return value.transpose(-1, -2).contiguous().transpose(-1, -2)
    longer = torch.zeros((*value.shape[:-1], 2 * value.shape[-1]), dtype=value.dtype, device=value.device)
    longer[..., ::2] = value
    return longer[..., ::2]
