"""Which blocks of a launch access one element without an order between them.

Every element remembers who wrote, read and atomically updated it last, and when. Blocks have no order but the one that
acquire and release operations give: a release leaves the block's clock at its address, an acquire joins the clocks left
there (vector clocks; L. Lamport, CACM 1978, and C. Fidge, 1988). Accesses to one buffer in elements of two sizes are
not compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tilewright.interpreter.machine import Machine
from tilewright.interpreter.values import Pointer

NOBODY, SEVERAL = -1, -2
_ACQUIRES, _RELEASES = {"ACQUIRE", "ACQ_REL"}, {"RELEASE", "ACQ_REL"}
_NARROW = {"BLOCK", "CLUSTER"}


@dataclass
class Finding:
    """A defect: its kind, the file and line it is at, what happens there, in which block it was first seen, and how
    often it was seen."""

    kind: str
    file: str
    line: int
    message: str
    block: str = ""
    count: int = 1


class _Trace:
    """Who made one kind of access to each element last (a number or a mark from above), when, and at which line."""

    def __init__(self, elements: int) -> None:
        self.used = False
        self.who = torch.full((elements,), NOBODY, dtype=torch.int32)
        self.when = torch.zeros(elements, dtype=torch.int32)
        self.line = torch.zeros(elements, dtype=torch.int32)


class _Memory:
    """The accesses to one storage in elements of one size: stores, loads and atomic updates, and which element of a
    store came last."""

    def __init__(self, elements: int) -> None:
        self.written, self.read, self.updated = _Trace(elements), _Trace(elements), _Trace(elements)
        self.last = torch.zeros(elements, dtype=torch.int64)


class _Access:
    """An access of the present operation at `offset` where it is `inside`, both (blocks or 1, *tile): the elements'
    flat places, the blocks' numbers, and whether each stands for all of a group."""

    def __init__(self, machine: Machine, pointer: Pointer, offset: torch.Tensor, inside: torch.Tensor | None) -> None:
        numbers = machine.group.numbers.to(torch.int32)[: offset.shape[0]]
        numbers = numbers.reshape(-1, *(1 for _ in offset.shape[1:])).expand(offset.shape)
        self.machine, self.pointer, self.inside = machine, pointer, inside
        self.places, self.blocks = self.of(offset), self.of(numbers)
        self.several = offset.shape[0] == 1 and machine.group.size > 1
        order = getattr(machine.op, "memory_order", None)
        self.order = "WEAK" if order is None else str(order.name)

    def of(self, values: torch.Tensor) -> torch.Tensor:
        """The values of the elements that are inside."""
        return values.reshape(-1) if self.inside is None else values[self.inside]


class Races:
    """The findings of all launches, and the accesses of one launch at a time. `stores` are the lines that stored to
    each storage, with the names of their functions."""

    def __init__(self) -> None:
        self.findings: dict[tuple[str, str, int], Finding] = {}
        self.stores: dict[int, set[tuple[str, int, str]]] = {}
        self._known: dict[tuple[int, int], _Memory] = {}
        self._clocks: dict[tuple[int, int], dict[int, int]] = {}
        self._clock: dict[int, int] = {}
        self._now = 0

    def report(self, kind: str, loc: Any, message: str, block: str) -> None:
        """Put a finding on the list, once for each kind and line."""
        key = (kind, str(loc.filename), int(loc.line))
        if key in self.findings:
            self.findings[key].count += 1
        else:
            self.findings[key] = Finding(*key, message, block)

    def next_launch(self) -> None:
        """What the launch before did is done."""
        self._known.clear()
        self._clocks.clear()

    def next_group(self) -> None:
        """Other blocks run now, which know of nothing."""
        self._clock = {}

    def loaded(self, machine: Machine, pointer: Pointer, offset: torch.Tensor, inside: torch.Tensor | None) -> None:
        """Note a load."""
        access, memory = self._access(machine, pointer, offset, inside)
        if access.order == "WEAK":
            self._compare(access, memory.written, "reads what block {} writes", None)
            self._compare(access, memory.updated, "reads what block {} updates", None)
            before = memory.read.who[access.places]
            new = torch.where((before == NOBODY) | (before == access.blocks), access.blocks, SEVERAL)
            self._put(access, memory.read, new, shared=True)
        self._acquire(access)

    def stored(
        self,
        machine: Machine,
        pointer: Pointer,
        offset: torch.Tensor,
        inside: torch.Tensor | None,
        value: torch.Tensor,
    ) -> None:
        """Note a store, before it is made."""
        access, memory = self._access(machine, pointer, offset, inside)
        if access.order == "WEAK":
            self._write(access, memory, access.of(value))
        self._release(access)
        loc = machine.op.loc
        function = loc.function.name if loc.function else "the kernel"
        self.stores.setdefault(pointer.buffer.data_ptr(), set()).add((str(loc.filename), int(loc.line), function))

    def atomic(self, machine: Machine, pointer: Pointer, offset: torch.Tensor, inside: torch.Tensor | None) -> None:
        """Note an atomic operation, and the order that it gives: with a narrow scope, it is one to its own block
        alone."""
        access, memory = self._access(machine, pointer, offset, inside)
        scope = machine.op.memory_scope.name
        self._acquire(access)
        self._compare(access, memory.written, "updates what block {} writes", None)
        self._compare(access, memory.read, "updates what block {} reads", None)
        what = f"updates, with memory_scope {scope}, what block {{}} updates"
        if scope in _NARROW:
            self._compare(access, memory.updated, what, None)
        self._put(access, memory.updated, access.blocks, shared=True)
        several = memory.updated.who[access.places] == SEVERAL
        if scope in _NARROW and several.any():
            self._tell(access, several, memory.updated.who[access.places], None, what)
        self._release(access)

    def _access(
        self, machine: Machine, pointer: Pointer, offset: torch.Tensor, inside: torch.Tensor | None
    ) -> tuple[_Access, _Memory]:
        self._now += 1
        key = (pointer.buffer.data_ptr(), pointer.buffer.element_size())
        if key not in self._known:
            self._known[key] = _Memory(pointer.buffer.numel())
        return _Access(machine, pointer, offset, inside), self._known[key]

    def _write(self, access: _Access, memory: _Memory, value: torch.Tensor) -> None:
        places, blocks = access.places, access.blocks
        changes = differ(access.pointer.buffer[places], value)
        self._compare(access, memory.written, "writes what block {} writes", changes)
        self._compare(access, memory.read, "writes what block {} reads", changes)
        self._compare(access, memory.updated, "writes what block {} updates", changes)
        self._put(access, memory.written, blocks)
        order = torch.arange(places.numel())
        memory.last[places] = order
        final = memory.last[places]
        strange = (final != order) & differ(value[final], value)
        apart = blocks[final] != blocks
        if (strange & apart).any():
            self._tell(access, strange & apart, blocks[final], None, "writes what block {} writes")
        if (strange & ~apart).any():
            what = "writes more than one value, and any of them stays"
            self._tell(access, strange & ~apart, blocks[final], None, what)

    def _acquire(self, access: _Access) -> None:
        """Join what was released at these places, if the operation acquires. Blocks that act so run one by one."""
        if access.order in _ACQUIRES and access.machine.group.size == 1:
            for place in access.places.unique().tolist():
                for block, when in self._clocks.get((access.pointer.buffer.data_ptr(), place), {}).items():
                    self._clock[block] = max(self._clock.get(block, -1), when)

    def _release(self, access: _Access) -> None:
        """Leave what the block has done and knows at these places, if the operation releases."""
        if access.order in _RELEASES and access.machine.group.size == 1:
            known = self._clock | {int(access.machine.group.numbers[0]): self._now}
            for place in access.places.unique().tolist():
                left = self._clocks.setdefault((access.pointer.buffer.data_ptr(), place), {})
                for block, when in known.items():
                    left[block] = max(left.get(block, -1), when)

    def _put(self, access: _Access, trace: _Trace, who: torch.Tensor, shared: bool = False) -> None:
        """Note who made the access; where several did, and it may be `shared`, that several did."""
        if access.several:
            who = torch.full_like(who, SEVERAL)
        trace.used = True
        trace.who[access.places] = who
        trace.when[access.places] = self._now
        trace.line[access.places] = int(access.machine.op.loc.line)
        if shared:
            trace.who[access.places[trace.who[access.places] != who]] = SEVERAL

    def _compare(self, access: _Access, trace: _Trace, what: str, where: torch.Tensor | None) -> None:
        """Report an access where another block's, noted in `trace`, has no order with it."""
        if not trace.used:
            return
        others = trace.who[access.places]
        strange = (others != NOBODY) & ((others != access.blocks) | access.several)
        if where is not None:
            strange = strange & where
        if strange.any() and access.machine.group.size == 1 and self._clock:
            known = torch.tensor([self._clock.get(int(other), -1) for other in others[strange].tolist()])
            several = others[strange] == SEVERAL  # who they are is not known: one who has acquired anything is trusted
            strange[strange.clone()] = ~((known >= trace.when[access.places][strange]) | several)
        if strange.any():
            self._tell(access, strange, others, trace, what)

    def _tell(
        self, access: _Access, strange: torch.Tensor, others: torch.Tensor, trace: _Trace | None, what: str
    ) -> None:
        machine = access.machine
        first = int(strange.to(torch.int8).argmax())
        other, block, place = int(others[first]), int(access.blocks[first]), int(access.places[first])
        if other == block:  # the access stands for all blocks of its group
            block = int(machine.group.numbers[-1])
        named = "another block" if other < 0 else f"block {shown(other, machine.grid)}"
        line = f" (line {int(trace.line[place])})" if trace is not None else ""
        element = f"element {place - access.pointer.low} of {machine.name_of(access.pointer)}"
        message = f"{what.replace('block {}', named)}{line}: {element}, in the same launch"
        self.report("race", machine.op.loc, message, shown(block, machine.grid))


def differ(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Where two values differ; NaN is like NaN."""
    return (left != right) & ~((left != left) & (right != right))


def shown(number: int, grid: tuple[int, int, int]) -> str:
    """A block's index, from its number."""
    return str((number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1])))
