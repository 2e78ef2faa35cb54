"""Reading SASS as nvdisasm prints it: each instruction with its source line, and what a line's instructions do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from pydantic import Field

from tilewright.wire.record import Record

_LINE = re.compile(r'^\s*//## File "([^"]*)", line (\d+)')
_INSTRUCTION = re.compile(
    r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[T0-9]+\s+)?([A-Z][A-Z0-9_]*)((?:\.[A-Za-z0-9_]+)*)([^;]*)"
)
_OWN_SOURCE = "/cuda/tile/"
_WIDTH = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
_PLAIN_WIDTH = 4

TENSOR_CORE = ("HGMMA", "QGMMA", "IGMMA", "UTCHMMA", "UTCQMMA", "UTCOMMA", "UTCIMMA", "HMMA", "IMMA", "QMMA", "DMMA")
SLICES = 3
TMA_LOADS = ("UTMALDG", "UBLKCP")
TMA_STORES = ("UTMASTG", "UTMAREDG")
TMA = (*TMA_LOADS, *TMA_STORES)


@dataclass(frozen=True)
class Instruction:
    """One machine instruction. `line` is 0 where the compiler gave none."""

    name: str
    modifiers: tuple[str, ...]
    operands: str
    file: str
    line: int

    @property
    def bytes(self) -> int:
        """What one thread moves, where this is a load or a store."""
        return next((_WIDTH[part] for part in self.modifiers if part in _WIDTH), _PLAIN_WIDTH)


class LineMix(Record):
    """How many instructions a source line became, by what they do. Loads and stores are counted by width in bytes."""

    file: str
    line: int = Field(description="0 for instructions that belong to no line")
    total: int
    tensor_core: int = 0
    tma_loads: int = 0
    tma_stores: int = 0
    async_copies: int = Field(0, description="cp.async")
    loads: dict[int, int] = Field({}, description="plain loads from global memory: bytes a thread, count")
    stores: dict[int, int] = Field({}, description="plain stores to global memory: bytes a thread, count")
    local: int = Field(0, description="local memory, as spills use it")
    special: int = Field(0, description="special functions (MUFU): exp2, reciprocal, square root, sine")
    calls: int = Field(0, description="calls of the slow path of an exact division or square root")
    permutes: int = Field(0, description="PRMT: bytes put together anew from two registers")

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}" if self.line else "no source line"


def instructions(text: str) -> Iterator[Instruction]:
    """The instructions of `nvdisasm -c -gi` output, in order.

    What was inlined comes with its callers, innermost first: the first that is not cuTile's own source counts.
    """
    file, line = "", 0
    settled = inlined = False
    for row in text.splitlines():
        if found := _LINE.match(row):
            if not (inlined and settled):
                file, line = PurePosixPath(found[1]).name, int(found[2])
                settled = _OWN_SOURCE not in found[1]
            inlined = " inlined at " in row
        elif found := _INSTRUCTION.match(row):
            inlined = False
            yield Instruction(found[1], tuple(found[2].split(".")[1:]), found[3].strip(), file, line)


def mix_by_line(listed: Sequence[Instruction], products: Iterable[tuple[str, int]] = ()) -> list[LineMix]:
    """What each source line became, in the order of the source.

    `products` are the lines of matrix products by the remarks. tileiras 13.4 gives the slices of one product for sm_90
    lines up to three below its own, and ptxas some of them a neighbour's: they are counted where they belong.
    """
    known = {*products}
    lines: dict[tuple[str, int], list[Instruction]] = {}
    for one in listed:
        place = (one.file, one.line)
        if one.name in TENSOR_CORE and known and place not in known:
            place = min(known, key=lambda product: (product[0] != one.file, abs(product[1] - one.line)))
        lines.setdefault(place, []).append(one)
    for place in sorted({(one.file, one.line) for one in listed if one.name in TENSOR_CORE} - known):
        above = [(place[0], place[1] - below) for below in range(1, SLICES + 1)]
        owner = next((product for product in above if product in known), None)
        rest = lines.get(place, [])
        if owner and not any(one.name in (*TMA, "LDG", "STG", "LDGSTS") for one in rest):
            lines.setdefault(owner, []).extend(lines.pop(place, []))
    return [_mix(file, line, lines[file, line]) for file, line in sorted(lines)]


def _mix(file: str, line: int, listed: list[Instruction]) -> LineMix:
    names = Counter(one.name for one in listed)
    return LineMix(
        file=file,
        line=line,
        total=len(listed),
        tensor_core=sum(names[name] for name in TENSOR_CORE),
        tma_loads=sum(names[name] for name in TMA_LOADS),
        tma_stores=sum(names[name] for name in TMA_STORES),
        async_copies=names["LDGSTS"],
        loads=dict(Counter(one.bytes for one in listed if one.name == "LDG")),
        stores=dict(Counter(one.bytes for one in listed if one.name == "STG")),
        local=names["LDL"] + names["STL"],
        special=names["MUFU"],
        calls=names["CALL"],
        permutes=names["PRMT"],
    )


def moved(listed: Iterable[Instruction], name: str) -> int:
    """Bytes that one thread moves by the instructions of that name, each counted once."""
    return sum(one.bytes for one in listed if one.name == name)


def register_counts(listed: Iterable[Instruction]) -> list[int]:
    """The counts that `setmaxnreg` gives groups of warps, highest first, each once."""
    found = {
        int(number, 16)
        for one in listed
        if one.name == "USETMAXREG"
        for number in re.findall(r"0x([0-9a-f]+)", one.operands)
    }
    return sorted(found, reverse=True)


def mix_table(mix: list[LineMix]) -> str:
    """The mix as text, a row for each source line, the longest first."""
    head = ("line", "all", "tensor", "TMA ld", "TMA st", "cp.async", "loads", "stores", "local", "special", "calls")
    rows: list[tuple[str, ...]] = [head]
    for one in sorted(mix, key=lambda one: -one.total):
        loads, stores = (" ".join(f"{n}x{w}B" for w, n in sorted(part.items())) for part in (one.loads, one.stores))
        numbers = (one.tensor_core, one.tma_loads, one.tma_stores, one.async_copies)
        rest = (one.local, one.special, one.calls)
        cells = [str(one.total), *map(str, numbers), loads or "0", stores or "0", *map(str, rest)]
        rows.append((one.where, *("." if cell == "0" else cell for cell in cells)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
