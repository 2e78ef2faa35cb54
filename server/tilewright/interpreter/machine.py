"""The state of a launch that is being interpreted, and the register of what each operation does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from tilewright.interpreter.numerics import DType, UnsupportedOperation
from tilewright.interpreter.undetermined import Undetermined
from tilewright.interpreter.values import Group, Pointer, Values

if TYPE_CHECKING:
    from tilewright.interpreter.races import Races

BlockIndex = tuple[int, int, int]
Operation = Callable[["Machine", Any, Values], Any]
Step = Callable[["Machine", Values], Any]
"""What one operation of a kernel does each time it is reached: its result, or a tuple of them."""

OPERATIONS: dict[str, Callable[[Any], Step]] = {}
"""Prepares an IR operation of each opcode: what does not change while a kernel runs is looked up once."""


class KernelFault(Exception):
    """The kernel did something that a GPU would not survive or not define, such as an access out of bounds."""


def operation(*opcodes: str) -> Callable[[Operation], Operation]:
    """Register a function as the meaning of the opcodes."""

    def register(function: Operation) -> Operation:
        for opcode in opcodes:
            OPERATIONS[opcode] = lambda op: lambda machine, values: function(machine, op, values)
        return function

    return register


def prepared(*opcodes: str) -> Callable[[Callable[[Any], Step]], Callable[[Any], Step]]:
    """Register a function that makes the step of an operation, for opcodes that loops are made of."""

    def register(prepare: Callable[[Any], Step]) -> Callable[[Any], Step]:
        for opcode in opcodes:
            OPERATIONS[opcode] = prepare
        return prepare

    return register


def step_of(op: Any) -> Step:
    """The step of an operation. If it is not interpreted, the step raises `UnsupportedOperation` when it is reached."""
    try:
        if op.op not in OPERATIONS:
            raise UnsupportedOperation(f"operation {op.op!r} is not interpreted by this version")
        return OPERATIONS[op.op](op)
    except UnsupportedOperation as error:
        what = str(error)

    def fails(machine: Machine, values: Values) -> Any:
        raise UnsupportedOperation(what)

    return fails


def dtype_of(var: Any) -> DType:
    """The dtype of an IR value's type."""
    return var.get_type().dtype


def shape_of(var: Any) -> tuple[int, ...]:
    """The tile shape of an IR value's type."""
    return tuple(var.get_type().shape)


@dataclass
class Counts:
    """What the executed blocks did: bytes loaded and stored by buffer (its address), flops by dtype, reductions by the
    number of their results."""

    blocks: int = 0
    loaded: Counter[int] = field(default_factory=Counter)
    stored: Counter[int] = field(default_factory=Counter)
    matrix_flops: Counter[str] = field(default_factory=Counter)
    scalar_flops: int = 0
    special_functions: int = 0
    loads: int = 0
    loop_trips: int = 0
    reductions: Counter[int] = field(default_factory=Counter)


class Machine(ABC):
    """One launch: `body` is the kernel's final IR, `grid` the number of blocks along each axis. `names` are the
    tensors' by their storage's address. `races` takes note of each access, if it is given."""

    def __init__(
        self,
        body: Any,
        grid: BlockIndex,
        names: dict[int, str] | None = None,
        undetermined: Undetermined | None = None,
        races: Races | None = None,
    ) -> None:
        self.body = body
        self.grid = grid
        self.names = names or {}
        self.group = Group(torch.zeros((0, 3), dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
        self.counts = Counts()
        self.printed: dict[int, list[str]] = {}
        self.undetermined = undetermined or Undetermined()
        self.races = races
        self.op: Any = None
        self.sampled = False

    def name_of(self, pointer: Pointer) -> str:
        return self.names.get(pointer.buffer.data_ptr(), "a tensor")

    def fault(self, what: str, who: torch.Tensor | None = None, kind: str = "out_of_bounds") -> None:
        """A fault of the present operation in the blocks where `who` (blocks or 1) holds. Raises `KernelFault`, unless
        `races` takes it."""
        position = 0 if who is None or who.shape[0] == 1 else int(who.to(torch.int8).argmax())
        if self.races is not None:
            self.races.report(kind, self.op.loc, what, self.group.shown(position))
            return
        raise KernelFault(f"{self.op.loc}: {what} (block {self.group.shown(position)})")

    def bounds(self, pointer: Pointer) -> tuple[int, int]:
        """The elements of its buffer that a pointer may reach: with `races`, its tensor's; else the whole storage's,
        outside which no memory is known."""
        return (0, pointer.buffer.numel()) if self.races is None else (pointer.low, pointer.high)

    @abstractmethod
    def apply_body(
        self, body: Any, left: Sequence[torch.Tensor], right: Sequence[torch.Tensor], values: Values
    ) -> list[Any]:
        """The user function of a reduce or scan on paired operands, laid out (left..., right...) by position."""
