"""Which blocks of a launch access one element without an order between them.

Every element remembers who wrote, read and atomically updated it last, and when. Blocks have no order but the one that
acquire and release operations give: a release leaves the block's clock at its address, an acquire joins the clocks left
there (vector clocks; L. Lamport, CACM 1978, and C. Fidge, 1988).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tilewright.interpreter.machine import Machine
from tilewright.interpreter.values import Pointer

NOBODY, SEVERAL = -1, -2
_GROUPS = -10
"""From here down: all blocks of a group stored one value; groups are numbered."""
_ACQUIRES, _RELEASES = {"ACQUIRE", "ACQ_REL"}, {"RELEASE", "ACQ_REL"}
_NARROW = {"BLOCK", "CLUSTER"}
Report = Callable[[Any, str, str], None]


class _Trace:
    """Who made one kind of access to each unit last (a number or a mark from above), when, and at which line."""

    def __init__(self, units: int) -> None:
        self.who = torch.full((units,), NOBODY, dtype=torch.int32)
        self.when = torch.zeros(units, dtype=torch.int32)
        self.line = torch.zeros(units, dtype=torch.int32)

    def split(self, times: int, units: int) -> _Trace:
        """The same of `units` smaller units, `times` of them for one."""
        finer = _Trace(units)
        for name in ("who", "when", "line"):
            known = getattr(self, name).repeat_interleave(times)
            getattr(finer, name)[: known.numel()] = known
        return finer


class _Memory:
    """The accesses to one storage, in units of the smallest elements that it was accessed in: stores, loads and atomic
    updates, and which part of a store came last."""

    def __init__(self, buffer: torch.Tensor) -> None:
        self.size = buffer.element_size()
        self.traces = (_Trace(buffer.numel()), _Trace(buffer.numel()), _Trace(buffer.numel()))
        self.last = torch.zeros(buffer.numel(), dtype=torch.int64)

    def refine(self, buffer: torch.Tensor) -> None:
        """Go over to units of `buffer`'s elements, if these are smaller."""
        times, units = self.size // buffer.element_size(), buffer.numel()
        if times > 1:
            self.size = buffer.element_size()
            written, read, updated = self.traces
            self.traces = (written.split(times, units), read.split(times, units), updated.split(times, units))
            self.last = torch.zeros(units, dtype=torch.int64)


@dataclass
class _Access:
    """One access: elements' flat places, the blocks' numbers, whether each stands for all of a group, and how it is
    shown; then the same for each of the `each` units that make an element."""

    places: torch.Tensor
    blocks: torch.Tensor
    several: bool
    name: str
    pointer: Pointer
    each: int
    units: torch.Tensor
    owners: torch.Tensor

    def spread(self, values: torch.Tensor) -> torch.Tensor:
        """What holds of each element, for its units."""
        return values if self.each == 1 else values.repeat_interleave(self.each)


class Races:
    """The accesses of one launch at a time. `report` takes a location, a message and a block."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._known: dict[int, _Memory] = {}
        self._clocks: dict[tuple[int, int], dict[int, int]] = {}
        self._clock: dict[int, int] = {}
        self._now = 0
        self._group = _GROUPS

    def next_launch(self) -> None:
        """What the launch before did is done."""
        self._known.clear()
        self._clocks.clear()

    def next_group(self) -> None:
        """Other blocks run now, which know of nothing."""
        self._clock = {}
        self._group -= 1

    def access(
        self, machine: Machine, pointer: Pointer, offset: torch.Tensor, inside: torch.Tensor | None, name: str
    ) -> _Access:
        """The places of an access, `offset` where it is `inside`; both (blocks or 1, *tile)."""
        self._now += 1
        numbers = machine.group.numbers.to(torch.int32)
        several = offset.shape[0] == 1 and machine.group.size > 1
        numbers = numbers[: offset.shape[0]].reshape(-1, *(1 for _ in offset.shape[1:])).expand(offset.shape)
        places = offset.reshape(-1) if inside is None else offset[inside]
        blocks = numbers.reshape(-1) if inside is None else numbers[inside]
        memory = self._memory(pointer.buffer)
        each = pointer.buffer.element_size() // memory.size
        if each == 1:
            return _Access(places, blocks, several, name, pointer, each, places, blocks)
        units = (places[:, None] * each + torch.arange(each)).reshape(-1)
        return _Access(places, blocks, several, name, pointer, each, units, blocks.repeat_interleave(each))

    def read(self, machine: Machine, access: _Access) -> None:
        """Note a plain load."""
        written, read, updated = self._memory(access.pointer.buffer).traces
        self._compare(machine, access, written, "reads what block {} writes", None)
        self._compare(machine, access, updated, "reads what block {} updates", None)
        before = read.who[access.units]
        new = torch.where((before == NOBODY) | (before == access.owners), access.owners, SEVERAL)
        self._put(machine, read, access, torch.full_like(new, SEVERAL) if access.several else new, SEVERAL)

    def write(self, machine: Machine, access: _Access, value: torch.Tensor) -> None:
        """Note a plain store of `value`, of the form of `access.places`, before it is made."""
        memory = self._memory(access.pointer.buffer)
        written, read, updated = memory.traces
        changes = access.spread(differ(access.pointer.buffer[access.places], value))
        self._compare(machine, access, written, "writes what block {} writes", changes)
        self._compare(machine, access, read, "writes what block {} reads", changes)
        self._compare(machine, access, updated, "writes what block {} updates", changes)
        who = torch.full_like(access.owners, self._group) if access.several else access.owners
        self._put(machine, written, access, who, None)
        order = torch.arange(access.units.numel())
        memory.last[access.units] = order
        final = memory.last[access.units]
        if (final != order).any():
            strange = (final != order) & differ(value[final // access.each], access.spread(value))
            apart = who[final] != who
            if (strange & apart).any():
                self._tell(machine, access, strange & apart, who[final], None, "writes what block {} writes")
            if (strange & ~apart).any():
                what = "writes more than one value, and any of them stays"
                self._tell(machine, access, strange & ~apart, who[final], None, what)

    def atomic(self, machine: Machine, access: _Access, order: str, scope: str) -> None:
        """Note an atomic operation, and the order that it gives: with a narrow `scope`, it is one to its own block
        alone."""
        written, read, updated = self._memory(access.pointer.buffer).traces
        self.acquire(machine, access, order)
        self._compare(machine, access, written, "updates what block {} writes", None)
        self._compare(machine, access, read, "updates what block {} reads", None)
        if scope in _NARROW:
            what = f"updates, with memory_scope {scope}, what block {{}} updates"
            self._compare(machine, access, updated, what, None)
        self._put(machine, updated, access, access.owners, SEVERAL)
        several = (updated.who[access.units] == SEVERAL) | access.several  # one place for all blocks of the group
        if scope in _NARROW and several.any():
            self._tell(machine, access, several, updated.who[access.units], None, what)
        self.release(machine, access, order)

    def acquire(self, machine: Machine, access: _Access, order: str) -> None:
        """Join what was released at these places, if `order` acquires. Blocks that act so run one by one."""
        if order in _ACQUIRES and machine.group.size == 1:
            for place in access.places.unique().tolist():
                for block, when in self._clocks.get((access.pointer.buffer.data_ptr(), place), {}).items():
                    self._clock[block] = max(self._clock.get(block, -1), when)

    def release(self, machine: Machine, access: _Access, order: str) -> None:
        """Leave what the block has done and knows at these places, if `order` releases."""
        if order in _RELEASES and machine.group.size == 1:
            known = self._clock | {int(machine.group.numbers[0]): self._now}
            for place in access.places.unique().tolist():
                left = self._clocks.setdefault((access.pointer.buffer.data_ptr(), place), {})
                for block, when in known.items():
                    left[block] = max(left.get(block, -1), when)

    def _memory(self, buffer: torch.Tensor) -> _Memory:
        address = buffer.data_ptr()
        if address not in self._known:
            self._known[address] = _Memory(buffer)
        self._known[address].refine(buffer)
        return self._known[address]

    def _put(self, machine: Machine, trace: _Trace, access: _Access, who: torch.Tensor, shared: int | None) -> None:
        trace.who[access.units] = who
        trace.when[access.units] = self._now
        trace.line[access.units] = int(machine.op.loc.line)
        if shared is not None:
            trace.who[access.units[trace.who[access.units] != who]] = shared

    def _compare(self, machine: Machine, access: _Access, trace: _Trace, what: str, where: torch.Tensor | None) -> None:
        """Report an access where another block's, noted in `trace`, has no order with it."""
        others = trace.who[access.units]
        strange = (others != NOBODY) & ((others != access.owners) | access.several) & (others != self._group)
        if where is not None:
            strange = strange & where
        if not strange.any():
            return
        if machine.group.size == 1 and self._clock:
            known = torch.tensor([self._clock.get(int(other), -1) for other in others[strange].tolist()])
            several = others[strange] == SEVERAL  # who they are is not known: one who has acquired anything is trusted
            strange = strange.clone()
            strange[strange.clone()] = ~((known >= trace.when[access.units][strange]) | several)
        if strange.any():
            self._tell(machine, access, strange, others, trace, what)

    def _tell(
        self,
        machine: Machine,
        access: _Access,
        strange: torch.Tensor,
        others: torch.Tensor,
        trace: _Trace | None,
        what: str,
    ) -> None:
        first = int(strange.to(torch.int8).argmax())
        other, block, place = int(others[first]), int(access.owners[first]), int(access.places[first // access.each])
        if other == block:  # the access stands for all blocks of its group
            block = int(machine.group.numbers[-1])
        named = "another block" if other < 0 else f"block {shown(other, machine.grid)}"
        line = f" (line {int(trace.line[access.units[first]])})" if trace is not None else ""
        element = place - access.pointer.low
        message = f"{what.replace('block {}', named)}{line}: element {element} of {access.name}, in the same launch"
        self._report(machine.op.loc, message, shown(block, machine.grid))


def differ(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Where two values differ; NaN is like NaN."""
    return (left != right) & ~((left != left) & (right != right))


def shown(number: int, grid: tuple[int, int, int]) -> str:
    """A block's index, from its number."""
    return str((number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1])))
