"""Which configs to try: a space that the user declares, or one that follows from what the kernel does.

A space is built from the bottom up, in the order in which knobs pay: a kernel without matrix products has its occupancy
and its worker warps; one with products also its tiles, each with the hints that its size asks for. A compile takes
about a second and a measurement more, so a space of more than `ADVISED` configs is reported as large.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tilewright.knobs import HINTS, Knobs, SpaceError, Value
from tilewright.roofline.model import CallProfile

ADVISED = 30
"""Configs above which a search is reported as long: compiles dominate, and most of a product's configs are hopeless."""
MOST = 400
"""Configs that one search takes."""
OPEN = "none"
"""Of a hint: left to the compiler, as where the source does not name it."""
WIDE_TILE = 128 * 256
"""Elements of an accumulator from which on four worker warps have too few registers for it."""

FLOPS_PER_EXPONENTIAL = 1500
"""Products' flops for each special function below which they are taken for attention's: 4 times the head's width there,
twice the inner extent for an activation after a matrix product."""


class Kind(StrEnum):
    """What the search takes a kernel for; each asks for other knobs. The numbers are those of the templates' page."""

    ELEMENTWISE = "T1 elementwise or reduction"
    IN_PLACE = "T2 in place"
    MATMUL = "T3 matmul"
    PERSISTENT = "T4 persistent matmul"
    ATTENTION = "T5 attention"
    FP8 = "T6 matmul in 8 bits"
    GROUPED = "T7 grouped matmul"
    VARLEN = "T8 attention over ragged sequences"
    DUAL = "T9 two matmuls of one operand"


PRODUCTS = (Kind.MATMUL, Kind.PERSISTENT, Kind.FP8)
"""Kinds that are one large product, which pairs of CTAs suit."""


@dataclass(frozen=True)
class Space:
    """The configs to try, the original first, and how they were come by."""

    configs: list[dict[str, Value]]
    why: str

    @property
    def warning(self) -> str:
        if len(self.configs) <= ADVISED:
            return ""
        return (
            f"{len(self.configs)} configs, and {ADVISED} is a good limit: each is compiled (a second or more), and "
            "most of a large space are far from the best; declare fewer values, or leave the space to be proposed"
        )


def declared(knobs: Knobs, values: Mapping[str, Sequence[Value]]) -> Space:
    """The product of the values given for each knob. Raises `SpaceError` for an unknown knob, a value that it cannot
    have, or a product of more than `MOST`."""
    if not values:
        raise SpaceError("a declared space names at least one tunable parameter, as in TILE_M=64,128")
    size = 1
    for name, choices in values.items():
        if not choices:
            raise SpaceError(f"{name} has no values to try")
        knobs.check(name, [value for value in choices if not _is_open(knobs, name, value)])
        size *= len(set(choices))
    if size > MOST:
        raise SpaceError(f"{size} configs are more than a search takes ({MOST}); give fewer values")
    product = itertools.product(*(dict.fromkeys(choices) for choices in values.values()))
    configs = [
        {name: value for name, value in zip(values, choice, strict=True) if not _is_open(knobs, name, value)}
        for choice in product
    ]
    return Space(_with_original(knobs, configs), "declared")


def _is_open(knobs: Knobs, name: str, value: Value) -> bool:
    """Whether this leaves a hint to the compiler, which no kernel has yet."""
    return str(value).lower() == OPEN and knobs.is_hint(name) and not any(name in one.named for one in knobs.kernels)


def proposed(knobs: Knobs, kind: Kind, arch: str) -> Space:
    """A space for a kernel of this kind on this architecture. Raises `SpaceError` if there is nothing to set."""
    tiles = tile_names(knobs)
    if not knobs.kernels and not tiles:
        raise SpaceError(
            "nothing to search: no cuTile kernel whose hints could be set, and no module-level constant named like a "
            "tile or block; give the tunable parameters (as in NUM_WARPS=4,8): constants of the editable files"
        )
    wide = int(arch.removeprefix("sm_")) >= 90
    if kind in (Kind.ELEMENTWISE, Kind.IN_PLACE):
        configs = _memory_bound(knobs, tiles)
    elif kind in (Kind.ATTENTION, Kind.VARLEN):
        configs = [_fitting(knobs, tile) for tile in _tiled(tiles, _ATTENTION_TILES)]
    elif kind is Kind.DUAL:
        configs = [_fitting(knobs, tile, held=2) for tile in _tiled(tiles, _DUAL_TILES)]
    else:
        configs = [_fitting(knobs, tile) for tile in _tiled(tiles, _MATMUL_TILES)]
    groups = [configs]
    if knobs.kernels and kind not in (Kind.ELEMENTWISE, Kind.IN_PLACE):
        groups.append([config | {"occupancy": 2} for config in configs if config.get("num_worker_warps") != 8])
        if wide and kind in PRODUCTS:
            groups.append([config | {"num_ctas": 2} for config in configs if config.get("num_worker_warps") == 8])
    return Space(_with_original(knobs, [config for group in groups for config in group]), f"proposed for {kind}")


def kind_of(profile: CallProfile, written_inputs: Iterable[str], arguments: Iterable[str], sms: int) -> Kind:
    """What a call is taken for, by what its launches do. A guess that decides which configs come first, nothing more.

    `written_inputs` are the inputs that the call overwrites, `arguments` the dtypes of its inputs.
    """
    products = [launch for launch in profile.launches if launch.matrix_flops]
    dtypes = set(arguments)
    if not products:
        return Kind.IN_PLACE if any(written_inputs) else Kind.ELEMENTWISE
    main = max(products, key=lambda launch: launch.blocks * sum(launch.matrix_flops.values()))
    exponentials = main.special_functions * FLOPS_PER_EXPONENTIAL > sum(main.matrix_flops.values())
    ragged = bool(dtypes & {"int32", "int64"})
    if exponentials:
        return Kind.VARLEN if ragged else Kind.ATTENTION
    if ragged or len(products) > 3:
        return Kind.GROUPED
    if any(dtype.startswith("float8") for dtype in dtypes):
        return Kind.FP8
    if main.blocks and main.blocks % sms == 0 and main.blocks <= 4 * sms and main.bytes_stored > 0:
        return Kind.PERSISTENT
    return Kind.MATMUL


def tile_names(knobs: Knobs) -> list[str]:
    """Constants that look like tile sizes: integers, powers of two, named so; in the order of the source."""
    return [
        name
        for name, value in knobs.constants.items()
        if isinstance(value, int) and not isinstance(value, bool) and value > 1 and value & (value - 1) == 0
        and any(word in name.upper() for word in ("TILE", "BLOCK", "BM", "BN", "BK"))
        and "GROUP" not in name.upper()
    ]  # fmt: skip


# From sweeps on an H200: the tiles that came first for products of 8192 and of odd sizes, and for attention with heads
# of 64 and 128; and smaller ones, for problems that would leave SMs idle.
_MATMUL_TILES = (
    (128, 128, 64), (128, 256, 64), (256, 128, 64), (128, 128, 128), (128, 256, 128), (256, 128, 128), (128, 128, 32),
    (128, 64, 64), (64, 128, 64), (64, 64, 64), (64, 64, 128),
)  # fmt: skip
_ATTENTION_TILES = ((64, 64), (64, 128), (128, 64), (128, 128), (256, 64))
_DUAL_TILES = ((64, 64, 64), (64, 128, 64), (128, 64, 64), (128, 128, 64), (64, 64, 128))


def _memory_bound(knobs: Knobs, tiles: list[str]) -> list[dict[str, Value]]:
    hints: list[dict[str, Value]] = [{"occupancy": occupancy} for occupancy in (1, 2, 4, 8, 16)]
    hints += [{"num_worker_warps": 8}, {"num_worker_warps": 8, "occupancy": 2}] if knobs.kernels else []
    configs: list[dict[str, Value]] = hints if knobs.kernels else []
    for name in tiles:
        now = int(knobs.constants[name])
        configs += [{name: size} for size in (now // 4, now // 2, now * 2, now * 4) if size >= 16]
    return configs


def _tiled(names: list[str], sizes: Sequence[tuple[int, ...]]) -> list[dict[str, Value]]:
    """The tiles of `sizes` in as many constants as there are; with none of them, the tile stays."""
    if not names:
        return [{}]
    found = [dict(zip(names, tile, strict=False)) for tile in sizes]
    return [dict(items) for items in dict.fromkeys(tuple(config.items()) for config in found)]


def _fitting(knobs: Knobs, tile: Mapping[str, Value], held: int = 1) -> dict[str, Value]:
    """A tile with the number of worker warps whose registers hold its accumulators, `held` of them."""
    sizes = [int(value) for value in itertools.islice(tile.values(), 2)]
    area = held * (sizes[0] * sizes[1] if len(sizes) == 2 else 0)
    if not knobs.kernels:
        return dict(tile)
    return {**tile, "num_worker_warps": 8 if area >= WIDE_TILE else 4}


def _with_original(knobs: Knobs, configs: list[dict[str, Value]]) -> list[dict[str, Value]]:
    """The configs without repetition, after the original, which changes nothing."""
    found: list[dict[str, Value]] = [{}]
    seen = {_key(knobs, {})}
    for config in configs:
        if (key := _key(knobs, config)) not in seen:
            seen.add(key)
            found.append(config)
    return found


def _key(knobs: Knobs, config: Mapping[str, Value]) -> tuple[tuple[str, Any], ...]:
    names = sorted({*config, *knobs.constants, *HINTS})
    return tuple((name, config.get(name, knobs.original([name]).get(name))) for name in names)
