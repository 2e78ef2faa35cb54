"""How taint goes from an operation's operands to its results, element by element.

A taint is an int16 tensor, (blocks or 1, *tile): 0 where a value is determined, else the number of its origin, of which
the largest is kept where several meet.
"""

from __future__ import annotations

from typing import Any

import torch

from tilewright.interpreter.machine import OPERATIONS, Machine
from tilewright.interpreter.values import Pointer, Values

FIRST_OVERFLOW = 1 << 14
"""Origins from here on are overflows, those below are not."""
_MOVES = {"tile_reshape", "tile_broadcast", "tile_permute", "tile_cat", "tile_extract", "tile_insert"}


def tainted(
    machine: Machine, op: Any, values: Values, taints: dict[str, torch.Tensor], made: torch.Tensor
) -> torch.Tensor | None:
    """The taint of the result `made` of an operation, from its operands' `taints` by name; None where there is none."""
    if not taints:
        return None
    if op.op in _MOVES:
        return _moved(machine, op, values, taints)
    if op.op in ("tile_reduce", "tile_scan"):
        worst = None
        for taint in taints.values():
            worst = taint if worst is None else torch.maximum(worst, taint)
        assert worst is not None
        axis = op.axis + 1
        if op.op == "tile_reduce":
            return worst.amax(axis).reshape(-1, *made.shape[1:])
        if op.reverse:
            return worst.flip(axis).cummax(axis).values.flip(axis)
        return worst.cummax(axis).values
    if op.op in ("tile_mma", "tile_mma_scaled"):
        return _product_taint(op, taints, made)
    if op.op in ("tile_pack", "tile_unpack"):
        return next(iter(taints.values())).amax().reshape(1).expand(made.shape)
    if op.op == "raw_where":
        yes, no = (taints.get(var.name, torch.zeros((), dtype=torch.int16)) for var in (op.x, op.y))
        found = torch.where(values[op.cond.name], yes, no)
        doubt = taints.get(op.cond.name)
        return found if doubt is None else torch.maximum(found, doubt)
    if op.op == "raw_binary_bitwise" and op.fn in ("and_", "or_"):
        return _masked_taint(op, values, taints)
    result: torch.Tensor | None = None
    for taint in taints.values():
        if taint.dim() == made.dim():
            result = taint if result is None else torch.maximum(result, taint)
    return result


class _Taints(Values):
    """Values in which the tiles' places are taken by their taints."""

    def __init__(self, values: Values, taints: dict[str, torch.Tensor], moved: set[str]) -> None:
        super().__init__(values)
        for name in moved:
            value = values[name]
            like = value.offset if isinstance(value, Pointer) else value
            self[name] = taints.get(name, torch.zeros(like.shape, dtype=torch.int16))


def _moved(machine: Machine, op: Any, values: Values, taints: dict[str, torch.Tensor]) -> torch.Tensor | None:
    """The taint of an operation that only moves elements: the same move."""
    moved = {var.name for name in ("x", "y", "value") if (var := getattr(op, name, None)) is not None}
    if not moved & set(taints):
        return None
    found: torch.Tensor = OPERATIONS[op.op](op)(machine, _Taints(values, taints, moved))
    return found


def _product_taint(op: Any, taints: dict[str, torch.Tensor], made: torch.Tensor) -> torch.Tensor:
    result = torch.zeros((1, *made.shape[1:]), dtype=torch.int16)
    for var, axis in ((op.x, -1), (op.y, -2)):
        if var.name in taints:
            result = torch.maximum(result, taints[var.name].amax(axis, keepdim=True))
    if op.acc.name in taints:
        result = torch.maximum(result, taints[op.acc.name])
    return result


def _masked_taint(op: Any, values: Values, taints: dict[str, torch.Tensor]) -> torch.Tensor:
    """A determined 0 decides an `and`, and a determined all-ones an `or`."""
    result: torch.Tensor | None = None
    for var, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        if var.name not in taints:
            continue
        beside = values[other.name]
        decided = beside == 0 if op.fn == "and_" else (~beside == 0 if beside.dtype != torch.bool else beside)
        if other.name in taints:
            decided = decided & (taints[other.name] == 0)
        taint = torch.where(decided, torch.zeros((), dtype=torch.int16), taints[var.name])
        if op.fn == "and_" and other.name not in taints and beside.dtype != torch.bool:
            taint = torch.where((beside >= 0) & (taint >= FIRST_OVERFLOW), 0, taint)  # a hash that is cut to its bits
        result = taint if result is None else torch.maximum(result, taint)
    assert result is not None
    return result
