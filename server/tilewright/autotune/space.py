"""Which configs to try: a space that the user declares, or one that follows from the kind of the kernel."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tilewright.knobs import HINTS, MATMUL, Knobs, SpaceError, Value
from tilewright.repository import Files

MOST = 400
"""Configs that one search takes."""
OPEN = "none"
"""Of a hint: left to the compiler, as where the source does not name it."""
WIDE_TILE = 128 * 256
"""Elements of an accumulator from which on four worker warps have too few registers for it."""
_EXPONENTIAL = re.compile(rb"\bexp2?\(")


class Kind(StrEnum):
    """What the search takes a kernel for; each asks for other values."""

    MATMUL = "matmul"
    ATTENTION = "attention"
    ROWS = "rows"


# From sweeps on an H200: the tiles that came first for products of 8192 and of odd sizes, and for attention with heads
# of 64 and 128; and smaller ones, for problems that would leave SMs idle.
TILES = {
    Kind.MATMUL: (
        (128, 128, 64), (128, 256, 64), (256, 128, 64), (128, 128, 128), (128, 256, 128), (256, 128, 128),
        (128, 128, 32), (128, 64, 64), (64, 128, 64), (64, 64, 64), (64, 64, 128),
    ),
    Kind.ATTENTION: ((64, 64), (64, 128), (128, 64), (128, 128), (256, 64)),
}  # fmt: skip


@dataclass(frozen=True)
class Space:
    """The configs to try, the original first, and how they were come by."""

    configs: list[dict[str, Value]]
    why: str


def declared(knobs: Knobs, values: Mapping[str, Sequence[Value]]) -> Space:
    """The product of the values given for each knob. Raises `SpaceError` for an unknown knob, a value that it cannot
    have, or a product of more than `MOST`."""
    size = 1
    for name, choices in values.items():
        if not choices:
            raise SpaceError(f"{name} has no values to try")
        knobs.check(name, [value for value in choices if not _is_open(knobs, name, value)])
        size *= len(set(choices))
    if size > MOST:
        raise SpaceError(f"{size} configs are more than a search takes ({MOST}); give fewer values")
    product = itertools.product(*(dict.fromkeys(choices) for choices in values.values()))
    configs = _with_original(
        knobs,
        [
            {name: value for name, value in zip(values, choice, strict=True) if not _is_open(knobs, name, value)}
            for choice in product
        ],
    )
    return Space(configs, "declared")


def _is_open(knobs: Knobs, name: str, value: Value) -> bool:
    """Whether this leaves a hint to the compiler, which no kernel has yet."""
    return str(value).lower() == OPEN and knobs.is_hint(name) and not any(name in one.named for one in knobs.kernels)


def kind_of(files: Files) -> Kind:
    """What a candidate is taken for, by its source: attention has two products and exponentials."""
    source = b"\n".join(content for name, content in files.items() if name.endswith(".py"))
    products = len(MATMUL.findall(source))
    if not products:
        return Kind.ROWS
    return Kind.ATTENTION if products > 1 and _EXPONENTIAL.search(source) else Kind.MATMUL


def proposed(knobs: Knobs, kind: Kind, arch: str) -> Space:
    """A space for a kernel of this kind on this architecture. Raises `SpaceError` if there is nothing to set."""
    names = tile_names(knobs)
    if not knobs.kernels and not names:
        raise SpaceError(
            "nothing to search: no cuTile kernel whose hints could be set, and no module-level constant named like a "
            "tile or block; give the tunable parameters (as in NUM_WARPS=4,8): constants of the editable files"
        )
    hinted = bool(knobs.kernels)
    configs: list[dict[str, Value]] = []
    if kind is Kind.ROWS:
        if hinted:
            configs += [{"occupancy": occupancy} for occupancy in (1, 2, 4, 8, 16)]
            configs += [{"num_worker_warps": 8}, {"num_worker_warps": 8, "occupancy": 2}]
        for name in names:
            now = int(knobs.constants[name])
            configs += [{name: size} for size in (now // 4, now // 2, now * 2, now * 4) if size >= 16]
    else:
        for sizes in TILES[kind]:
            tile: dict[str, Value] = dict(zip(names, sizes, strict=False))
            wide = len(tile) > 1 and sizes[0] * sizes[1] >= WIDE_TILE
            if not hinted:
                configs.append(tile)
                continue
            tile["num_worker_warps"] = 8 if wide else 4
            configs.append(tile)
            if not wide:
                configs.append({**tile, "occupancy": 2})
            elif kind is Kind.MATMUL and int(arch.removeprefix("sm_")) >= 90:
                configs.append({**tile, "num_ctas": 2})
    return Space(_with_original(knobs, configs), f"proposed for {kind}")


def tile_names(knobs: Knobs) -> list[str]:
    """Constants that look like tile sizes: integers, powers of two, named so; in the order of the source."""
    return [
        name
        for name, value in knobs.constants.items()
        if isinstance(value, int) and not isinstance(value, bool) and value > 1 and value & (value - 1) == 0
        and any(word in name.upper() for word in ("TILE", "BLOCK", "BM", "BN", "BK"))
        and "GROUP" not in name.upper()
    ]  # fmt: skip


def _with_original(knobs: Knobs, configs: list[dict[str, Value]]) -> list[dict[str, Value]]:
    """The configs without repetition, after the original, which changes nothing."""
    found: dict[tuple[tuple[str, Any], ...], dict[str, Value]] = {}
    for config in [{}, *configs]:
        names = sorted({*config, *knobs.constants, *HINTS})
        key = tuple((name, config.get(name, knobs.original([name]).get(name))) for name in names)
        found.setdefault(key, config)
    return [*found.values()]
