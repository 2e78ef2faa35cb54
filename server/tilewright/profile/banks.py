"""Bank conflicts by counting: what the addresses of a kernel's shared loads and stores are, lane by lane.

Follows the integer instructions of SASS that make an address out of a thread's number, for one warp and in the order of
the code; whatever it does not know makes the result unknown, and such accesses are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tilewright.compiler.sass import Instruction, instructions

LANES = 32
BANKS, BANK_BYTES = 32, 4
MASK = 0xFFFFFFFF
Lanes = tuple[int, ...] | None
"""A register's value in each lane; None where it is not known."""
_ROW = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?[A-Z]", re.MULTILINE)
_ACCESS = re.compile(r"\[(U?R\w+)?(?:\.\w+)?(?:\+(U?R\d+))?(?:\+?(-?0x[0-9a-f]+))?\]")


class Conflicts(NamedTuple):
    """The shared accesses whose addresses are known, and the wavefronts that a warp's share of them takes and needs."""

    accesses: int
    wavefronts: int
    needed: int
    where: str
    """The source line that wastes most."""

    @property
    def factor(self) -> float:
        return self.wavefronts / max(self.needed, 1)


def shared_conflicts(sass: str) -> Conflicts:
    """What the shared loads and stores in the text of `nvdisasm` cost, of one warp and each once."""
    registers: dict[str, Lanes] = {"RZ": (0,) * LANES, "URZ": (0,) * LANES}
    accesses = wavefronts = needed = 0
    wasted: dict[str, int] = {}
    for one, row in zip(instructions(sass), _ROW.finditer(sass), strict=False):
        if one.name in ("LDS", "STS"):
            addresses = _address(one.operands, registers)
            if addresses is not None:
                taken, least = _wavefronts(addresses, one.bytes)
                accesses, wavefronts, needed = accesses + 1, wavefronts + taken, needed + least
                place = f"{one.file}:{one.line}" if one.line else ""
                wasted[place] = wasted.get(place, 0) + taken - least
        _step(one, registers, bool(row[1]))
    worst = max(wasted, key=lambda place: wasted[place], default="")
    return Conflicts(accesses, wavefronts, needed, worst)


def _wavefronts(addresses: Sequence[int], width: int) -> tuple[int, int]:
    """Wavefronts of one access, and the fewest for the words that it touches: wide ones go by halves and quarters."""
    lanes = max(LANES * BANK_BYTES // max(width, BANK_BYTES), 1)
    taken = least = 0
    for first in range(0, LANES, lanes):
        words = {
            (address + offset) // BANK_BYTES
            for address in addresses[first : first + lanes]
            for offset in range(0, max(width, BANK_BYTES), BANK_BYTES)
        }
        counts = [0] * BANKS
        for word in words:
            counts[word % BANKS] += 1
        taken, least = taken + max(counts), least + -(-len(words) // BANKS)
    return taken, least


def _address(operands: str, registers: dict[str, Lanes]) -> Lanes:
    found = _ACCESS.search(operands)
    if found is None:
        return None
    parts = [registers.get(name) for name in found.groups()[:2] if name]
    offset = int(found[3], 16) if found[3] else 0
    return None if None in parts else _each(lambda *values: sum(values) + offset, [part or () for part in parts])


def _each(work: Callable[..., int], values: Iterable[Sequence[int]]) -> Lanes:
    listed = list(values)
    if not listed:
        return (work() & MASK,) * LANES
    return tuple(work(*lane) & MASK for lane in zip(*listed, strict=True))


def _step(one: Instruction, registers: dict[str, Lanes], predicated: bool) -> None:
    """Note what an instruction leaves in its destination."""
    names = [part.strip() for part in one.operands.split(",")]
    target = names[0].removesuffix(".reuse") if names else ""
    if not re.fullmatch(r"U?R\d+", target):
        return
    sources = [name for name in names[1:] if not re.fullmatch(r"!?U?P[T\d]+", name)]
    registers[target] = None if predicated else _result(one, sources, registers)
    if "WIDE" in one.modifiers or "64" in one.modifiers:
        kind, number = target.rstrip("0123456789"), int(target.lstrip("UR"))
        registers[f"{kind}{number + 1}"] = None


def _result(one: Instruction, sources: list[str], registers: dict[str, Lanes]) -> Lanes:
    if one.name in ("S2R", "S2UR"):
        if sources[:1] == ["SR_TID.X"]:
            return tuple(range(LANES))
        return (0,) * LANES if sources[0].startswith(("SR_CgaCtaId", "SR_CTAID", "SR_TID", "SR_LANEID")) else None
    work = _WORK.get(one.name)
    values = [_operand(name, registers) for name in sources]
    if work is None or None in values:
        return None
    try:
        return _each(lambda *lane: work(one.modifiers, lane), [value or () for value in values])
    except (ValueError, IndexError):
        return None


def _operand(name: str, registers: dict[str, Lanes]) -> Lanes:
    bare = name.removesuffix(".reuse")
    negative, inverted = bare.startswith("-"), bare.startswith("~")
    bare = bare.lstrip("-~")
    if re.fullmatch(r"0x[0-9a-f]+|\d+", bare):
        value: Lanes = (int(bare, 0),) * LANES
    else:
        value = registers.get(bare)
    if value is None:
        return None
    if negative:
        return tuple(-lane & MASK for lane in value)
    return tuple(~lane & MASK for lane in value) if inverted else value


def _logic(_: Sequence[str], lane: Sequence[int]) -> int:
    """LOP3: any function of three bits, as a table of eight."""
    a, b, c, table = lane[:4]
    result = 0
    for index in range(8):
        if table >> index & 1:
            result |= (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
    return result


def _shift(modifiers: Sequence[str], lane: Sequence[int]) -> int:
    low, by, high = lane[0], lane[1] & 63, lane[2]
    if "S32" in modifiers and "R" in modifiers:
        value = high if "HI" in modifiers else low
        return (value - (1 << 32) if value >> 31 else value) >> min(by, 31)
    both = high << 32 | low
    if "L" in modifiers:
        return (both << by) >> 32 if "HI" in modifiers else low << by
    return high >> by if "HI" in modifiers else both >> by


def _multiply(modifiers: Sequence[str], lane: Sequence[int]) -> int:
    if "HI" in modifiers or "X" in modifiers:
        raise ValueError
    return lane[0] * lane[1] + lane[2]


def _add(modifiers: Sequence[str], lane: Sequence[int]) -> int:
    if "X" in modifiers:
        raise ValueError
    return sum(lane[:3])


def _scaled(modifiers: Sequence[str], lane: Sequence[int]) -> int:
    if "X" in modifiers:
        raise ValueError
    if "HI" in modifiers:  # the upper word of a pair, shifted
        return ((lane[2] << 32 | lane[0]) << lane[3] >> 32) + lane[1]
    return (lane[0] << lane[-1]) + lane[1]


def _bytes(_: Sequence[str], lane: Sequence[int]) -> int:
    """PRMT: four bytes picked out of two registers."""
    if lane[1] & 0x8888:
        raise ValueError
    pool = lane[2] << 32 | lane[0]
    return sum((pool >> 8 * (lane[1] >> 4 * place & 7) & 255) << 8 * place for place in range(4))


_Work = Callable[[Sequence[str], Sequence[int]], int]
_BASE: dict[str, _Work] = {
    "LOP3": _logic, "SHF": _shift, "IMAD": _multiply, "IADD3": _add, "LEA": _scaled, "PRMT": _bytes,
    "MOV": lambda _, lane: lane[0], "VIADD": lambda _, lane: lane[0] + lane[1],
}  # fmt: skip
_WORK = _BASE | {f"U{name}": work for name, work in _BASE.items()} | {"R2UR": _BASE["MOV"]}
