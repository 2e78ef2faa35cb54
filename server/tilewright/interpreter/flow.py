"""Executes a kernel's final cuTile IR, many blocks side by side: control flow, and dispatch to the operations.

Each operation runs once for a group of blocks. Where a branch or a loop parts them, the group is split, and joined
again behind it. Blocks that wait for one another run one by one, in the order of the grid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import torch

import tilewright.interpreter.memory
import tilewright.interpreter.operations
import tilewright.interpreter.shapes  # noqa: F401 (all register operations)
from tilewright.interpreter.machine import Counts, KernelFault, Machine, Step, step_of
from tilewright.interpreter.numerics import UnsupportedOperation, held_dtype
from tilewright.interpreter.values import Group, Values, joined, select

SAMPLED_LOOP_LIMIT = 20_000
"""Trips of a loop that waits, where only some blocks run: it may wait for one of the others."""
GROUP_ELEMENTS = 1 << 17
"""Elements of a group's largest tile: about what a core's cache holds."""
GROUP_BLOCKS = 4096


@dataclass
class Exit:
    """How some blocks left a block of IR: continue, break, end_branch, return or end, with the values they hand on.

    `who` are their positions in the group, ascending; None for all of it.
    """

    kind: str
    values: list[Any]
    who: torch.Tensor | None = None


Prepared: TypeAlias = tuple[Any, str, Step, tuple[str, ...]]
"""An operation, its opcode if it is control flow, its step, and the names of its results (of its values, if it leaves
the block)."""
_LEAVES = {"continue": "values", "break": "values", "end_branch": "outputs", "return": "result_vars"}
_BLOCKS: WeakKeyDictionary[Any, list[Prepared]] = WeakKeyDictionary()


def _prepared(body: Any) -> list[Prepared]:
    """The operations of a block of IR, each prepared when the block is first reached."""
    found = _BLOCKS.get(body)
    if found is None:
        found = []
        for op in body.operations:
            flows = op.op if op.op in _LEAVES or op.op in ("loop", "ifelse") else ""
            names = tuple(var.name for var in getattr(op, _LEAVES.get(op.op, "result_vars")))
            found.append((op, flows, _nothing if flows else step_of(op), names))
        _BLOCKS[body] = found  # whole, or another thread would run a part of the block
    return found


def _nothing(machine: Machine, values: Values) -> None:
    """The step of control flow, which `Execution` runs itself."""


def all_operations(body: Any) -> Iterator[Any]:
    """All operations of a kernel's body, those of nested blocks too."""
    for op in body.operations:
        yield op
        for block in op.nested_blocks:
            yield from all_operations(block)


def needs_order(body: Any) -> bool:
    """Whether blocks may wait for, or act on, what others did before: such a kernel runs block by block."""
    used = {var.name for op in all_operations(body) for var in op.all_inputs()}
    for op in all_operations(body):
        match op.op:
            case "tile_atomic_cas" | "get_array_list_item":
                return True
            case "tile_atomic_rmw":
                adds = op.mode.name in ("ADD_INT", "ADD_FLOAT")
                if not adds or op.result_vars[0].name in used:
                    return True
            case "tile_atomic_red_view":
                if op.mode.name not in ("ADD_INT", "ADD_FLOAT"):
                    return True
            case "tile_load" | "tile_store" if op.memory_order.name != "WEAK":
                return True
    return False


def group_blocks(body: Any) -> int:
    """How many blocks run side by side."""
    if needs_order(body):
        return 1
    sizes = [
        math.prod(ty.shape)
        for op in all_operations(body)
        for var in op.result_vars
        if hasattr(ty := var.get_type(), "dtype") and hasattr(ty, "shape") and all(isinstance(n, int) for n in ty.shape)
    ]
    return min(max(GROUP_ELEMENTS // max(sizes, default=1), 1), GROUP_BLOCKS)


class Execution(Machine):
    """Runs one launch."""

    def run(self, arguments: list[Any], numbers: torch.Tensor | None = None) -> Counts:
        """Execute blocks on the flattened kernel `arguments`: those with `numbers` in the grid (x fastest), or all.

        Raises `KernelFault` for what no GPU would define, `UnsupportedOperation` for what is not interpreted;
        both name the source line and the block. With `races`, the faults that it can go on from are findings.
        """
        names = [parameter.name for parameter in self.body.params]
        if len(names) != len(arguments):
            raise UnsupportedOperation(f"the kernel takes {len(names)} flat arguments, {len(arguments)} were made")
        self.sampled = numbers is not None
        if numbers is None:
            numbers = torch.arange(math.prod(self.grid))
        for part in numbers.split(group_blocks(self.body)):
            x, y = part % self.grid[0], part // self.grid[0] % self.grid[1]
            blocks = torch.stack((x, y, part // (self.grid[0] * self.grid[1])), 1)
            values = Values()
            values.update(zip(names, arguments, strict=True))
            self.counts.blocks += len(part)
            if self.races is not None:
                self.races.next_group()
            self.execute(self.body, values, Group(blocks, part))
        return self.counts

    def execute(self, body: Any, values: Values, group: Group) -> list[Exit]:
        """Execute one block of IR for a group, with `values`, which it extends."""
        before, self.group = self.group, group
        try:
            return self._from(_prepared(body), 0, values, group)
        finally:
            self.group = before

    def _from(self, operations: list[Prepared], first: int, values: Values, group: Group) -> list[Exit]:
        for position in range(first, len(operations)):
            op, kind, step, names = operations[position]
            match kind:
                case "":
                    self.op = op
                    try:
                        result = step(self, values)
                    except UnsupportedOperation as error:
                        if "(block" in str(error):
                            raise
                        raise UnsupportedOperation(f"{op.loc}: {error} (block {group.shown(0)})") from None
                    if len(names) == 1:
                        values[names[0]] = result
                    elif names:
                        values.update(zip(names, result, strict=True))
                case "continue" | "break" | "end_branch" | "return":
                    return [Exit(kind, [values[name] for name in names])]
                case _:
                    split = self._loop if kind == "loop" else self._branch
                    on, left = split(op, values, group)
                    if on is None:
                        return left
                    if not left:
                        values.update(zip((var.name for var in op.result_vars), on.values, strict=True))
                        continue
                    assert on.who is not None
                    rest = Values(values, on.who)
                    rest.update(zip((var.name for var in op.result_vars), on.values, strict=True))
                    remaining = group.select(on.who)
                    before, self.group = self.group, remaining
                    try:
                        later = self._from(operations, position + 1, rest, remaining)
                    finally:
                        self.group = before
                    return left + [_within(one, on.who) for one in later]
        return [Exit("end", [])]

    def apply_body(
        self, body: Any, left: Sequence[torch.Tensor], right: Sequence[torch.Tensor], values: Values
    ) -> list[Any]:
        """The user function of a reduce or scan on paired operands, laid out (left..., right...) by position."""
        operands = [value for pair in zip(left, right, strict=True) for value in pair]
        values.update(zip((parameter.name for parameter in body.params), operands, strict=True))
        outer = self.op
        ended = self._from(_prepared(body), 0, values, self.group)
        self.op = outer
        if len(ended) != 1 or ended[0].who is not None:
            raise UnsupportedOperation("a reduction whose function branches on its operands is not interpreted")
        return [
            result
            if result.shape == like.shape and result.dtype == like.dtype
            else result.to(like.dtype).expand(max(len(result), len(like)), *like.shape[1:])
            for result, like in zip(ended[0].values, left, strict=True)
        ]

    def _branch(self, op: Any, values: Values, group: Group) -> tuple[Exit | None, list[Exit]]:
        condition = values[op.cond.name]
        if condition.shape[0] > 1 and not (condition == condition[0]).all():
            exits = []
            for taken, body in ((condition, op.then_block), (~condition, op.else_block)):
                who = taken.nonzero().reshape(-1)
                ended = self.execute(body, Values(values, who), group.select(who))
                exits += [_within(one, who) for one in ended]
        else:
            taken = bool(condition.reshape(-1)[0])
            exits = self.execute(op.then_block if taken else op.else_block, values, group)
        return _gathered(exits, ("end_branch", "end"), group)

    def _loop(self, op: Any, values: Values, group: Group) -> tuple[Exit | None, list[Exit]]:
        carried = [values[var.name] for var in op.initial_values]
        bounds = [values[var.name].to(torch.int64) for var in (op.start, op.stop, op.step)] if op.is_for_loop else []
        alike = all(bound.shape[0] == 1 for bound in bounds)
        counters = iter(_range(op, bounds)) if bounds and alike else None
        induction = held_dtype(op.induction_var.get_type().dtype) if bounds else None
        left: list[Exit] = []
        who: torch.Tensor | None = None
        scope, inside = values, group
        trip = 0
        while True:
            if counters is not None:
                now = next(counters, None)
                if now is None:
                    left.append(Exit("over", carried, who))
                    break
                scope[op.induction_var.name] = torch.tensor([now], dtype=induction)
            elif op.is_for_loop:
                start, stop, step = (bound if who is None else select(bound, who) for bound in bounds)
                counter = start + trip * step
                going = torch.where(step > 0, counter < stop, counter > stop)
                if not going.all():
                    over = (~going).expand(inside.size).nonzero().reshape(-1)
                    done = Exit("over", carried) if len(over) == inside.size else _taken(Exit("over", carried), over)
                    left.append(_within(done, who))
                    if len(over) == inside.size:
                        break
                    more = going.expand(inside.size).nonzero().reshape(-1)
                    carried = _taken(Exit("", carried), more).values
                    who = more if who is None else who[more]
                    scope, inside = Values(values, who), group.select(who)
                    counter = select(counter, more)
                scope[op.induction_var.name] = counter.to(induction)
            elif self.sampled and trip >= SAMPLED_LOOP_LIMIT:
                raise UnsupportedOperation(
                    f"{op.loc}: a loop ran {trip} times, maybe for blocks that a sample leaves out; measure this on a "
                    f"GPU (block {inside.shown(0)})"
                )
            if trip >= self.undetermined.loop_limit:
                raise KernelFault(f"{op.loc}: a loop ran {trip} times without end (block {inside.shown(0)})")
            self.counts.loop_trips += inside.size
            scope.update(zip((var.name for var in op.body_vars), carried, strict=True))
            on, others = _gathered(self.execute(op.body, scope, inside), ("continue", "end"), inside)
            left += [_within(one, who) for one in others]
            if on is None:
                break
            carried = on.values
            if on.who is not None:
                who = on.who if who is None else who[on.who]
                scope, inside = Values(values, who), group.select(who)
            trip += 1
        return _gathered(left, ("break", "over"), group)


def _range(op: Any, bounds: list[torch.Tensor]) -> range:
    """What a loop counts, whose bounds are the same in all blocks."""
    start, stop, step = (int(bound) for bound in bounds)
    if not step:
        raise KernelFault(f"{op.loc}: the step of a loop is 0")
    return range(start, stop, step)


def _within(one: Exit, who: torch.Tensor | None) -> Exit:
    """An exit of the blocks `who` of a group, as one of that group."""
    if who is None:
        return one
    return Exit(one.kind, one.values, who if one.who is None else who[one.who])


def _taken(one: Exit, who: torch.Tensor) -> Exit:
    """An exit of a whole group, for the blocks `who` of it."""
    return Exit(one.kind, [select(value, who) for value in one.values], who)


def _gathered(exits: list[Exit], kinds: tuple[str, ...], group: Group) -> tuple[Exit | None, list[Exit]]:
    """The exits of `kinds` as one, in the order of the group, and the others."""
    if len(exits) == 1 and exits[0].who is None and exits[0].kind in kinds:
        return exits[0], []
    on = [one for one in exits if one.kind in kinds]
    left = [one for one in exits if one.kind not in kinds]
    if not on:
        return None, left
    if len(on) == 1 and (on[0].who is None or len(on[0].who) == group.size):
        return Exit(on[0].kind, on[0].values), left
    parts = [one.who if one.who is not None else torch.arange(group.size) for one in on]
    who, order = torch.cat(parts).sort()
    sizes = [len(part) for part in parts]
    values = [joined(list(column), sizes, order) for column in zip(*(one.values for one in on), strict=True)]
    return Exit(on[0].kind, values, None if len(who) == group.size else who), left
