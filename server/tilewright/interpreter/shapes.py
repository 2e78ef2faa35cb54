"""What each operation that moves, joins or parts tiles means. Nothing is computed here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from tilewright.interpreter.machine import Machine, dtype_of, operation, shape_of
from tilewright.interpreter.numerics import held_dtype, packed, unpacked, wrap
from tilewright.interpreter.values import Pointer, Values


def _reshaped(value: Any, change: Any) -> Any:
    if isinstance(value, Pointer):
        return replace(value, offset=change(value.offset))
    return change(value)


@operation("tile_reshape")
def _tile_reshape(machine: Machine, op: Any, values: Values) -> Any:
    shape = shape_of(op.result_var)
    return _reshaped(values[op.x.name], lambda value: value.reshape(value.shape[0], *shape))


@operation("tile_broadcast")
def _tile_broadcast(machine: Machine, op: Any, values: Values) -> Any:
    shape = shape_of(op.result_var)

    def change(value: torch.Tensor) -> torch.Tensor:
        value = value.reshape(value.shape[0], *(1 for _ in range(len(shape) + 1 - value.dim())), *value.shape[1:])
        return value.expand(value.shape[0], *shape)

    return _reshaped(values[op.x.name], change)


@operation("tile_permute")
def _tile_permute(machine: Machine, op: Any, values: Values) -> Any:
    return _reshaped(values[op.x.name], lambda value: value.permute(0, *(axis + 1 for axis in op.axes)))


def _alike(left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two values with the same number of blocks."""
    blocks = max(left.shape[0], right.shape[0])
    return left.expand(blocks, *left.shape[1:]), right.expand(blocks, *right.shape[1:])


@operation("tile_cat")
def _tile_cat(machine: Machine, op: Any, values: Values) -> Any:
    return torch.cat(_alike(values[op.x.name], values[op.y.name]), op.axis + 1)


def _part(machine: Machine, op: Any, values: Values, sizes: tuple[int, ...], blocks: int) -> tuple[torch.Tensor, ...]:
    """What picks, of a tile in each block, the sub-tile `op.index` of these sizes."""
    rank = len(sizes)
    for var, size, whole in zip(op.index, sizes, shape_of(op.x), strict=True):
        outside = (values[var.name] < 0) | ((values[var.name] + 1) * size > whole)
        if outside.any():
            machine.fault(f"a sub-tile outside its tile of {whole}", outside)
    found = [torch.arange(blocks).reshape(-1, *(1 for _ in sizes))]
    for axis, (var, size) in enumerate(zip(op.index, sizes, strict=True)):
        last = shape_of(op.x)[axis] // size - 1
        positions = values[var.name].to(torch.int64).clamp(0, last)[:, None] * size + torch.arange(size)
        found.append(positions.reshape(positions.shape[0], *(size if axis == other else 1 for other in range(rank))))
    return tuple(found)


@operation("tile_extract")
def _tile_extract(machine: Machine, op: Any, values: Values) -> Any:
    value = values[op.x.name]
    blocks = max([value.shape[0], *(values[var.name].shape[0] for var in op.index)])
    return value.expand(blocks, *value.shape[1:])[_part(machine, op, values, shape_of(op.result_var), blocks)]


@operation("tile_insert")
def _tile_insert(machine: Machine, op: Any, values: Values) -> Any:
    value, part = values[op.x.name], values[op.value.name]
    blocks = max([value.shape[0], part.shape[0], *(values[var.name].shape[0] for var in op.index)])
    result = value.expand(blocks, *value.shape[1:]).clone()
    result[_part(machine, op, values, shape_of(op.value), blocks)] = part.expand(blocks, *part.shape[1:])
    return result


@operation("tile_arange")
def _tile_arange(machine: Machine, op: Any, values: Values) -> Any:
    dtype = dtype_of(op.result_var)
    return wrap(torch.arange(shape_of(op.result_var)[0], dtype=held_dtype(dtype)), dtype)[None]


@operation("tile_pack")
def _tile_pack(machine: Machine, op: Any, values: Values) -> Any:
    return packed(values[op.x.name], dtype_of(op.x))


@operation("tile_unpack")
def _tile_unpack(machine: Machine, op: Any, values: Values) -> Any:
    return unpacked(values[op.x.name], dtype_of(op.result_var))
