"""The state of a launch that is being interpreted, and the register of what each operation does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import torch

from tilewright.interpreter.numerics import DType, UnsupportedOperation
from tilewright.interpreter.values import Group, Pointer, Values, View

Taint: TypeAlias = torch.Tensor | None
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


class Watcher(Protocol):
    """What follows an execution: see `checker`."""

    def report(self, kind: str, loc: Any, message: str, block: str) -> None: ...
    def next_group(self) -> None: ...
    def used(self, machine: Machine, taint: Taint, how: str, where: Taint = None) -> None: ...
    def noted(self, taints: list[Taint]) -> None: ...
    def follow(self, machine: Machine, op: Any, values: Values) -> None: ...
    def padded(self, machine: Machine, view: View, inside: torch.Tensor, taint: Taint) -> Taint: ...
    def loaded(self, machine: Machine, pointer: Pointer, offset: torch.Tensor, inside: Taint) -> Taint: ...
    def atomic(self, machine: Machine, pointer: Pointer, offset: torch.Tensor, inside: Taint, op: Any) -> None: ...
    def stored(
        self,
        machine: Machine,
        pointer: Pointer,
        offset: torch.Tensor,
        inside: Taint,
        value: torch.Tensor,
        taint: Taint,
    ) -> None: ...


class Machine(ABC):
    """One launch: `body` is the kernel's final IR, `grid` the number of blocks along each axis."""

    def __init__(self, body: Any, grid: BlockIndex, checker: Watcher | None = None) -> None:
        self.body = body
        self.grid = grid
        self.group = Group(torch.zeros((0, 3), dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
        self.counts = Counts()
        self.printed: dict[int, list[str]] = {}
        self.checker = checker
        self.op: Any = None
        self.taint: torch.Tensor | None = None
        self.sampled = False

    def fault(self, what: str, who: torch.Tensor | None = None, kind: str = "out_of_bounds") -> None:
        """A fault of the present operation in the blocks where `who` (blocks or 1) holds. Raises `KernelFault`, unless
        a checker takes it."""
        position = 0 if who is None or who.shape[0] == 1 else int(who.to(torch.int8).argmax())
        if self.checker is not None:
            self.checker.report(kind, self.op.loc, what, self.group.shown(position))
            return
        raise KernelFault(f"{self.op.loc}: {what} (block {self.group.shown(position)})")

    def bounds(self, pointer: Pointer) -> tuple[int, int]:
        """The elements of its buffer that a pointer may reach: with a checker, its tensor's; else the whole storage's,
        outside which no memory is known."""
        return (0, pointer.buffer.numel()) if self.checker is None else (pointer.low, pointer.high)

    @abstractmethod
    def apply_body(
        self, body: Any, left: Sequence[torch.Tensor], right: Sequence[torch.Tensor], values: Values
    ) -> list[Any]:
        """The user function of a reduce or scan on paired operands, laid out (left..., right...) by position."""
