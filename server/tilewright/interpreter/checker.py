"""Watches a kernel as no GPU does: races, memory that nobody wrote, undetermined padding, overflowing indices.

What a load brings that nothing determined is tainted, element by element, and the taint follows it through the
arithmetic (the method of MemorySanitizer; E. Stepanov and K. Serebryany, CGO 2015). It is reported where it decides
something: a store, a branch, an address. Overflow taints in the same way, and is reported where it reaches an address.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tilewright.interpreter.machine import Machine
from tilewright.interpreter.numerics import SIGNED_BITS
from tilewright.interpreter.races import Races, shown
from tilewright.interpreter.taint import FIRST_OVERFLOW, tainted
from tilewright.interpreter.values import Pointer, Values, View

PADDING, UNWRITTEN, OVERFLOW = "undetermined_padding", "unwritten_memory", "index_overflow"
RACE, UNVISITED = "race", "unvisited"
_OWN = {"tile_load", "load_pointer", "tile_store", "store_pointer", "assign", "typed_const"}
_CAN_OVERFLOW = {("raw_bitwise_shift", "lshift"), *(("raw_binary_arith", name) for name in ("add", "sub", "mul"))}


@dataclass
class Finding:
    """A defect: its kind, the file and line it is at, what happens there, in which block it was first seen, and how
    often it was seen."""

    kind: str
    file: str
    line: int
    message: str
    block: str
    count: int = 1


class Checker:
    """Findings over any number of launches. `names` are the tensors' by their storage's address."""

    def __init__(self) -> None:
        self.findings: dict[tuple[str, str, int], Finding] = {}
        self.names: dict[int, str] = {}
        self._written: dict[int, torch.Tensor] = {}
        self._kept: list[torch.Tensor] = []
        self._races = Races(lambda loc, message, block: self.report(RACE, loc, message, block))
        self._origins: dict[int, tuple[str, Any, str]] = {}
        self._inner = 0
        self.stores: dict[int, set[tuple[str, int, str]]] = {}

    def report(self, kind: str, loc: Any, message: str, block: str) -> None:
        """Put a finding on the list, once for each kind and line."""
        key = (kind, str(loc.filename), int(loc.line))
        if key in self.findings:
            self.findings[key].count += 1
        else:
            self.findings[key] = Finding(*key, message, block)

    # Memory that nobody wrote

    def fresh(self, tensor: torch.Tensor) -> None:
        """Memory that holds nothing yet. It is kept, so that its address stays its own."""
        storage = tensor.untyped_storage()
        if storage.nbytes() and tensor.device.type == "cpu":
            self._written[storage.data_ptr()] = torch.zeros(storage.nbytes(), dtype=torch.bool)
            self._kept.append(tensor)

    def wrote(self, tensor: torch.Tensor) -> None:
        """Host code wrote a tensor."""
        known = self._written.get(tensor.untyped_storage().data_ptr())
        if known is not None and tensor.numel():
            size = tensor.element_size()
            strides = (*(stride * size for stride in tensor.stride()), 1)
            known.as_strided((*tensor.shape, size), strides, tensor.storage_offset() * size).fill_(True)

    def unwritten(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Which elements of a tensor nobody wrote; None if there are none."""
        known = self._written.get(tensor.untyped_storage().data_ptr())
        if known is None or not tensor.numel():
            return None
        size = tensor.element_size()
        strides = tuple(stride * size for stride in tensor.stride())
        written = known.as_strided(tuple(tensor.shape), strides, tensor.storage_offset() * size)
        return None if written.all() else ~written

    def outputs(self, tensors: list[torch.Tensor]) -> None:
        """Report the elements of a call's outputs that no block has written."""
        for number, tensor in enumerate(tensors):
            missing = self.unwritten(tensor)
            if missing is None:
                continue
            first = tuple(missing.nonzero()[0].tolist())
            address = tensor.untyped_storage().data_ptr()
            name = self.names.get(address, f"output {number}")
            message = f"{int(missing.sum())} of {missing.numel()} elements of {name} are written by no block, the "
            message += f"first at {first}"
            for file, line, function in sorted(self.stores.get(address, {("", 0, "")})):
                key = (UNVISITED, file, line)
                text = f"{message}; the store is in {function}" if function else f"{message}; no kernel stores to it"
                self.findings.setdefault(key, Finding(*key, text, ""))

    def host_read(self, tensor: torch.Tensor) -> None:
        """Host code reads a tensor between launches."""
        self.outputs([tensor])

    def _elements(self, pointer: Pointer) -> torch.Tensor | None:
        known = self._written.get(pointer.buffer.data_ptr())
        size = pointer.buffer.element_size()
        return None if known is None else known[: known.numel() // size * size].view(-1, size)[:, 0]

    def _mark_written(self, pointer: Pointer, offset: torch.Tensor) -> None:
        known = self._written.get(pointer.buffer.data_ptr())
        if known is not None:
            size = pointer.buffer.element_size()
            known[: known.numel() // size * size].view(-1, size)[offset] = True

    # Accesses

    def next_launch(self) -> None:
        """What the launch before did is done."""
        self._races.next_launch()

    def next_group(self) -> None:
        """Other blocks run now."""
        self._inner = 0
        self._races.next_group()

    def loaded(
        self, machine: Machine, pointer: Pointer, offset: torch.Tensor, inside: torch.Tensor | None
    ) -> torch.Tensor | None:
        """Note a load. Its taint, if it brings what nobody wrote."""
        offset, inside = _spread(offset, inside)
        access = self._races.access(machine, pointer, offset, inside, self._name(pointer))
        order = _order(machine)
        if order == "WEAK":
            self._races.read(machine, access)
        self._races.acquire(machine, access, order)
        elements = self._elements(pointer)
        if elements is None:
            return None
        missing = ~elements[offset]
        if inside is not None:
            missing = missing & inside
        if not missing.any():
            return None
        what = f"reads {self._name(pointer)} where nobody has written it"
        return missing.to(torch.int16) * self._origin(UNWRITTEN, machine.op.loc, what)

    def padded(
        self, machine: Machine, view: View, inside: torch.Tensor, taint: torch.Tensor | None
    ) -> torch.Tensor | None:
        """The taint of a load whose tile is only partly inside its array."""
        if view.ty.padding_mode.name != "UNDETERMINED" or inside.all():
            return taint
        what = f"reads past the edge of {self._name(view.base)} with undetermined padding"
        added = (~inside).to(torch.int16) * self._origin(PADDING, machine.op.loc, what)
        return added if taint is None else torch.maximum(added, taint)

    def stored(
        self,
        machine: Machine,
        pointer: Pointer,
        offset: torch.Tensor,
        inside: torch.Tensor | None,
        value: torch.Tensor,
        taint: torch.Tensor | None,
    ) -> None:
        """Note a store, before it is made."""
        if taint is not None:
            self.used(machine, taint, "is stored", inside)
        access = self._races.access(machine, pointer, offset, inside, self._name(pointer))
        order = _order(machine)
        if order == "WEAK":
            self._races.write(machine, access, value.reshape(-1) if inside is None else value[inside])
        self._races.release(machine, access, order)
        self._mark_written(pointer, access.places)
        loc = machine.op.loc
        function = loc.function.name if loc.function else "the kernel"
        self.stores.setdefault(pointer.buffer.data_ptr(), set()).add((str(loc.filename), int(loc.line), function))

    def atomic(
        self, machine: Machine, pointer: Pointer, offset: torch.Tensor, inside: torch.Tensor | None, op: Any
    ) -> None:
        """Note an atomic operation: it reads, and what it orders is known to have happened."""
        offset, inside = _spread(offset, inside)
        access = self._races.access(machine, pointer, offset, inside, self._name(pointer))
        elements = self._elements(pointer)
        if elements is not None and not elements[access.places].all():
            number = int(access.blocks[int((~elements[access.places]).to(torch.int8).argmax())])
            what = f"updates {self._name(pointer)} where nobody has written it"
            self.report(UNWRITTEN, machine.op.loc, what, shown(number, machine.grid))
        self._mark_written(pointer, access.places)
        self._races.atomic(machine, access, op.memory_order.name, op.memory_scope.name)

    # Taint

    def _origin(self, kind: str, loc: Any, what: str) -> int:
        for number, (known, place, text) in self._origins.items():
            if (known, place.filename, place.line, text) == (kind, loc.filename, loc.line, what):
                return number
        first = FIRST_OVERFLOW if kind == OVERFLOW else 1
        number = first + sum((known == OVERFLOW) == (kind == OVERFLOW) for known, _, _ in self._origins.values())
        self._origins[number] = (kind, loc, what)
        return number

    def used(self, machine: Machine, taint: torch.Tensor | None, how: str, where: torch.Tensor | None = None) -> None:
        """Report what a taint comes from, where it decides something: `how`. Only elements `where` count, but for an
        overflow, which may have decided that."""
        if taint is None or not taint.any():
            return
        counted = taint if where is None else torch.where(where, taint, 0)
        for number in taint.unique().tolist():
            if not number:
                continue
            kind, loc, what = self._origins[number]
            if kind == OVERFLOW and how != "is an index":
                continue
            hit = (taint if kind == OVERFLOW else counted) == number
            if hit.any():
                blocks = hit.reshape(hit.shape[0], -1).any(1)
                position = int(blocks.to(torch.int8).argmax())
                text = f"{what}, and the result {how} at line {machine.op.loc.line}"
                self.report(kind, loc, text, machine.group.shown(position))

    def noted(self, taints: list[torch.Tensor | None]) -> None:
        """What a reduction's function tainted inside."""
        self._inner = max([self._inner, *(int(taint.max()) for taint in taints if taint is not None and taint.numel())])

    def follow(self, machine: Machine, op: Any, values: Values) -> None:
        """Give an operation's results the taint of what they were made of."""
        if op.op in _OWN:
            if op.op == "assign":
                values.put(op.result_var.name, values.cell(op.value.name))
            elif machine.taint is not None:
                values.put(op.result_vars[0].name, (values[op.result_vars[0].name], machine.taint))
            return
        inner, self._inner = (self._inner, 0) if op.op in ("tile_reduce", "tile_scan") else (0, self._inner)
        taints = {var.name: taint for var in op.all_inputs() if (taint := values.cell(var.name)[1]) is not None}
        overflow = self._overflow(machine, op, values)
        if not taints and overflow is None and not inner:
            return
        for var in op.result_vars:
            value = values[var.name]
            made = value.offset if isinstance(value, Pointer) else value
            if not isinstance(made, torch.Tensor):
                continue
            taint = tainted(machine, op, values, taints, made)
            if overflow is not None:
                taint = overflow if taint is None else torch.maximum(overflow, taint)
            if inner:
                whole = torch.full((made.shape[0], *made.shape[1:]), inner, dtype=torch.int16)
                taint = whole if taint is None else torch.maximum(whole, taint)
            if taint is not None and taint.any():
                values.put(var.name, (value, taint))

    def _overflow(self, machine: Machine, op: Any, values: Values) -> torch.Tensor | None:
        """Where the exact result of a signed addition, subtraction, product or shift does not fit."""
        if (op.op, getattr(op, "fn", "")) not in _CAN_OVERFLOW:
            return None
        left, right = values[op.lhs.name], values[op.rhs.name]
        dtype = op.result_var.get_type().dtype
        if dtype not in SIGNED_BITS:
            return None
        left, right = left.to(torch.int64), right.to(torch.int64)
        exact = left << right.clamp(0, 31) if op.op == "raw_bitwise_shift" else getattr(torch, op.fn)(left, right)
        limit = 1 << (SIGNED_BITS[dtype] - 1)
        over = (exact < -limit) | (exact >= limit)
        if not over.any():
            return None
        what = f"the exact result of `{op.fn}` does not fit into {dtype}"
        taint: torch.Tensor = over.to(torch.int16) * self._origin(OVERFLOW, op.loc, what)
        return taint

    def _name(self, pointer: Pointer) -> str:
        return self.names.get(pointer.buffer.data_ptr(), "a tensor")


def _spread(offset: torch.Tensor, inside: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Offsets and mask with the same number of blocks."""
    if inside is None:
        return offset, None
    blocks = max(offset.shape[0], inside.shape[0])
    shape = (blocks, *offset.shape[1:])
    return offset.expand(shape), inside.expand(shape)


def _order(machine: Machine) -> str:
    """The memory order of the present operation."""
    order = getattr(machine.op, "memory_order", None)
    return "WEAK" if order is None else str(order.name)
