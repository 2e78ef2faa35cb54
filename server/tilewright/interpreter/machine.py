"""Executes a kernel's final cuTile IR, block by block: control flow, and dispatch to the operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from tilewright.interpreter.memory import KernelFault
from tilewright.interpreter.numerics import DType, UnsupportedOperation, held_dtype

Values = dict[str, Any]
BlockIndex = tuple[int, int, int]
Operation = Callable[["Machine", Any, Values], Any]

OPERATIONS: dict[str, Operation] = {}
"""What each opcode does: (machine, IR operation, values by name) -> its result, or a tuple of them."""

LOOP_LIMIT = 1_000_000


def operation(*opcodes: str) -> Callable[[Operation], Operation]:
    """Register a function as the meaning of the opcodes."""

    def register(function: Operation) -> Operation:
        for opcode in opcodes:
            OPERATIONS[opcode] = function
        return function

    return register


def dtype_of(var: Any) -> DType:
    """The dtype of an IR value's type."""
    return var.get_type().dtype


def shape_of(var: Any) -> tuple[int, ...]:
    """The tile shape of an IR value's type."""
    return tuple(var.get_type().shape)


@dataclass
class Counts:
    """What the executed blocks did: bytes loaded and stored by buffer (its address), flops by dtype."""

    blocks: int = 0
    loaded: Counter[int] = field(default_factory=Counter)
    stored: Counter[int] = field(default_factory=Counter)
    matrix_flops: Counter[str] = field(default_factory=Counter)
    scalar_flops: int = 0
    special_functions: int = 0
    loads: int = 0
    loop_trips: int = 0


@dataclass
class Exit:
    """How a block of IR ended: continue, break, end_branch or return, and the values that it hands on."""

    kind: str
    values: list[Any]


class Machine:
    """Runs one launch. `body` is the kernel's final IR, `grid` the number of blocks along each axis."""

    def __init__(self, body: Any, grid: BlockIndex) -> None:
        import tilewright.interpreter.access
        import tilewright.interpreter.operations  # noqa: F401 (both register operations)

        self.body = body
        self.grid = grid
        self.block: BlockIndex = (0, 0, 0)
        self.counts = Counts()
        self.printed: list[str] = []

    def run(self, arguments: list[Any], blocks: Iterable[BlockIndex]) -> Counts:
        """Execute `blocks` in order on the flattened kernel `arguments`.

        Raises `KernelFault` for what no GPU would define, `UnsupportedOperation` for what is not interpreted;
        both name the source line and the block.
        """
        names = [parameter.name for parameter in self.body.params]
        if len(names) != len(arguments):
            raise UnsupportedOperation(f"the kernel takes {len(names)} flat arguments, {len(arguments)} were made")
        for block in blocks:
            self.block = block
            self.counts.blocks += 1
            self.execute(self.body, dict(zip(names, arguments, strict=True)))
        return self.counts

    def execute(self, body: Any, values: Values) -> Exit:
        """Execute one block of IR with `values`, which it extends."""
        for op in body.operations:
            opcode = op.op
            match opcode:
                case "continue" | "break":
                    return Exit(opcode, [values[var.name] for var in op.values])
                case "end_branch":
                    return Exit(opcode, [values[var.name] for var in op.outputs])
                case "return":
                    return Exit(opcode, [])
                case "loop" | "ifelse":
                    ended = self._loop(op, values) if opcode == "loop" else self._branch(op, values)
                    if ended is not None:
                        return ended
                case _:
                    self._apply(op, values)
        return Exit("end", [])

    def apply_body(self, body: Any, left: list[torch.Tensor], right: list[torch.Tensor], values: Values) -> list[Any]:
        """The user function of a reduce or scan on paired operands, laid out (left..., right...) by position."""
        inner = dict(values)
        operands = [value for pair in zip(left, right, strict=True) for value in pair]
        for parameter, value in zip(body.params, operands, strict=True):
            inner[parameter.name] = value
        results = self.execute(body, inner).values
        return [
            result.to(like.dtype).expand(like.shape) if result.shape != like.shape else result
            for result, like in zip(results, left, strict=True)
        ]

    def _apply(self, op: Any, values: Values) -> None:
        function = OPERATIONS.get(op.op)
        try:
            if function is None:
                raise UnsupportedOperation(f"operation {op.op!r} is not interpreted by this version")
            result = function(self, op, values)
        except (KernelFault, UnsupportedOperation) as error:
            if "(block" in str(error):
                raise
            raise type(error)(f"{op.loc}: {error} (block {self.block})") from None
        if len(op.result_vars) == 1:
            values[op.result_vars[0].name] = result
        elif op.result_vars:
            for var, value in zip(op.result_vars, result, strict=True):
                values[var.name] = value

    def _branch(self, op: Any, values: Values) -> Exit | None:
        taken = op.then_block if bool(values[op.cond.name]) else op.else_block
        ended = self.execute(taken, values)
        if ended.kind not in ("end_branch", "end"):
            return ended
        for var, value in zip(op.result_vars, ended.values, strict=True):
            values[var.name] = value
        return None

    def _loop(self, op: Any, values: Values) -> Exit | None:
        carried = [values[var.name] for var in op.initial_values]
        if op.is_for_loop:
            start, stop, step = (int(values[var.name]) for var in (op.start, op.stop, op.step))
            dtype = held_dtype(op.induction_var.get_type().dtype)
            trips: Iterable[int] = range(start, stop, step)
        else:
            trips = range(LOOP_LIMIT)
        ended = Exit("end", carried)
        for trip in trips:
            self.counts.loop_trips += 1
            if op.is_for_loop:
                values[op.induction_var.name] = torch.tensor(trip, dtype=dtype)
            for var, value in zip(op.body_vars, ended.values, strict=True):
                values[var.name] = value
            ended = self.execute(op.body, values)
            if ended.kind == "return":
                return ended
            if ended.kind == "break":
                break
        else:
            if not op.is_for_loop:
                raise KernelFault(f"{op.loc}: a loop ran {LOOP_LIMIT} times without end (block {self.block})")
        for var, value in zip(op.result_vars, ended.values, strict=True):
            values[var.name] = value
        return None
