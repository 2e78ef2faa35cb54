"""Whether a larger output tile would make a matrix product faster, by how often it uses what it loads.

It reads products in cuTile's IR whose two operands are tile loads; what it cannot read, it says nothing of.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tilewright.compiler.compilation import Compilation
from tilewright.compiler.resources import most_product_bytes
from tilewright.gpu.specs import DEFAULT_BY_ARCH, DeviceSpec
from tilewright.roofline.model import CLOCK_HZ, DRAM_EFFICIENCY, L2_BYTES_PER_CYCLE_PER_SM, MATRIX_EFFICIENCY

Shapes = Mapping[str, Sequence[int]]
"""The shapes of a launch's tensors, by the kernel's names of them."""

GAIN = 1.4
"""Times faster by the model, from which a larger tile is named. For a bf16 product of 8192^3 on an H200 it has
1.9 from 64x64 to 128x128, which measured 2.5, and 1.5 from 64x128, which measured 1.6."""
MOST_EXTENT, MOST_ELEMENTS = 256, 128 * 256
"""Of an output tile. None that is larger was measured to gain."""
STAGES = 2
"""Loads of a loop that shared memory must hold at least, so that one is fetched while another is used."""
LARGE = 16384
"""Taken as the extent of each axis where shapes are not known."""
WORKER_WARPS = 4
_ITEM_BYTES = {"tfloat32": 4, "float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}
"""Of the dtypes that products take; those that are missing have 8 bits."""

_TILE = re.compile(
    r"^( *)([\w$.]+): (?:const )?Tile\[(\w+),\(([\d,]*)\)\](?:, [\w$.]+: Token)? = (\w+)\((.*)\)$", re.MULTILINE
)
_VIEW = re.compile(
    r"^ *([\w$.]+)\{[^}]*\}: PartitionView\[Array\[(\w+),[^=]*tile_shape=\(([\d, ]+)\),order=\(([\d, ]+)\)[^=]*=[^=]*"
    r"= make_partition_view\(array=([\w$.]+)",
    re.MULTILINE,
)


class LargerTile(NamedTuple):
    """An output tile (rows, columns) that reuses more of what it loads. `flops_a_byte` are those of the tile as it is,
    of the larger one, and those that the tensor cores need; `gain` is how many times faster the model has it."""

    tile: tuple[int, int]
    larger: tuple[int, int]
    flops_a_byte: tuple[float, float, float]
    gain: float


class _Operand(NamedTuple):
    """A tile load that a product takes: which one, from a view of which array, and the array's axis of each of the
    operand's last two (None where the operand has an axis that the array has not)."""

    load: str
    dtype: str
    array: str
    tile: tuple[int, ...]
    axes: tuple[int, int]


class _Product(NamedTuple):
    """Products of one loop with the same tile: its extents, those of the matrices, bytes loaded for each row and column
    of the tile and each step along K, and how many results there are."""

    m: int
    n: int
    k: int
    matrix: tuple[int, int, int]
    batches: int
    row_bytes: int
    column_bytes: int
    results: int
    dtype: str

    def at(self, m: int, n: int) -> _Product:
        return self._replace(m=m, n=n)

    @property
    def flops_a_byte(self) -> float:
        """Of a block's loop, whatever its length."""
        return 2 * self.results * self.m * self.n / (self.m * self.row_bytes + self.n * self.column_bytes)


def larger_tile(made: Compilation, shapes: Shapes) -> LargerTile | None:
    """The larger output tile that `made` should take, where the model has it `GAIN` times faster; else None. Without
    `shapes` the matrices are taken to be large."""
    resources, device = made.resources, DEFAULT_BY_ARCH.get(made.arch)
    if resources is None or device is None or not resources.tensor_core:
        return None
    if resources.spill_bytes or resources.cluster_ctas > 1:  # a cluster's blocks share loads
        return None
    product = _product(made.cutile_ir, shapes)
    if product is None:
        return None
    room = most_product_bytes(made.arch, 32 * made.hints.get("num_worker_warps", WORKER_WARPS))
    others = [
        other
        for rows, columns in itertools.product((1, 2, 4), repeat=2)
        if _fits(other := product.at(rows * product.m, columns * product.n), room, device)
    ]
    best = min(others, key=lambda other: (_seconds(other, device), other.m * other.n), default=product)
    gain = _seconds(product, device) / _seconds(best, device)
    if gain < GAIN:
        return None
    rate = device.peak_flops(product.dtype) * MATRIX_EFFICIENCY
    figures = product.flops_a_byte, best.flops_a_byte, rate / _l2_bytes_per_s(device)
    return LargerTile((product.m, product.n), (best.m, best.n), figures, gain)


def _fits(product: _Product, room: float, device: DeviceSpec) -> bool:
    step = product.k * (product.m * product.row_bytes + product.n * product.column_bytes)
    return (
        max(product.m, product.n) <= MOST_EXTENT
        and product.m * product.n <= MOST_ELEMENTS
        and product.results * product.m * product.n * 4 <= room
        and STAGES * step <= device.limits.shared_bytes
    )


def _l2_bytes_per_s(device: DeviceSpec) -> float:
    return L2_BYTES_PER_CYCLE_PER_SM * CLOCK_HZ * device.sms


def _seconds(product: _Product, device: DeviceSpec) -> float:
    """The slowest of tensor cores, L2 and DRAM. Whole tiles count, in whole waves, at edges too."""
    rows, columns, depth = product.matrix
    tiles = product.batches * math.ceil(rows / product.m) * math.ceil(columns / product.n)
    steps = math.ceil(depth / product.k) * product.k
    item = _ITEM_BYTES.get(product.dtype, 1)
    block_flops = 2.0 * product.results * product.m * product.n * steps
    block_bytes = steps * (product.m * product.row_bytes + product.n * product.column_bytes)
    block_bytes += product.results * product.m * product.n * item
    waves = tiles / device.sms
    busy = max(
        tiles * block_flops / (device.peak_flops(product.dtype) * MATRIX_EFFICIENCY),
        tiles * block_bytes / _l2_bytes_per_s(device),
    )
    least = rows * depth * product.row_bytes + columns * depth * product.column_bytes
    least += product.results * rows * columns * item
    dram = product.batches * least / (device.dram_bytes_per_s * DRAM_EFFICIENCY)
    return max(busy * math.ceil(waves) / waves, dram)


def _product(ir: str, shapes: Shapes) -> _Product | None:
    """What the products of a kernel have in common; None where they differ, or there is something else to load."""
    tiles = {name: (len(indent), dtype, shape, op, rest) for indent, name, dtype, shape, op, rest in _TILE.findall(ir)}
    views = {name: rest for name, *rest in _VIEW.findall(ir)}
    found: list[tuple[_Operand, _Operand, str]] = []
    for indent, _, _, op, rest in tiles.values():
        if op.startswith("tile_mma"):
            names = re.match(r"x=([\w$.]+), y=([\w$.]+), acc=", rest)
            if op != "tile_mma" or names is None:  # with scales, say
                return None
            left, right = (_operand(name, indent, tiles, views) for name in names.groups())
            if left is None or right is None:
                return None
            found.append((left, right, tiles[names[1]][1]))
    kinds = {_kind(left, right, dtype, shapes) for left, right, dtype in found}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None:
        return None
    (m, n, k), matrix, batches, dtype = kind
    row_bytes = _step_bytes(left for left, _, _ in found)
    column_bytes = _step_bytes(right for _, right, _ in found)
    return _Product(m, n, k, matrix, batches, row_bytes, column_bytes, len(found), dtype)


def _step_bytes(operands: Iterable[_Operand]) -> int:
    """Bytes for each row, or column, and each step along K, of the loads that are different."""
    return sum(_ITEM_BYTES.get(one.dtype, 1) for one in {one.load: one for one in operands}.values())


_Kind = tuple[tuple[int, int, int], tuple[int, int, int], int, str]


def _kind(left: _Operand, right: _Operand, dtype: str, shapes: Shapes) -> _Kind | None:
    """Tile and extents (M, N, K) of a product, how many there are, and its dtype; None if they are not known."""
    tile = left.tile[left.axes[0]], right.tile[right.axes[1]], left.tile[left.axes[1]]
    if not shapes:
        return tile, (LARGE, LARGE, LARGE), 1, dtype
    a, b = shapes.get(left.array), shapes.get(right.array)
    if a is None or b is None or len(a) != len(left.tile) or len(b) != len(right.tile) or min(*a, *b) < 1:
        return None
    others = [axis for axis in range(len(a)) if axis not in left.axes]
    batches = math.prod(math.ceil(a[axis] / left.tile[axis]) for axis in others)
    return tile, (a[left.axes[0]], b[right.axes[1]], a[left.axes[1]]), batches, dtype


def _operand(
    name: str, indent: int, tiles: Mapping[str, tuple[int, str, str, str, str]], views: Mapping[str, list[str]]
) -> _Operand | None:
    """The load that an operand of a product is, through casts, transpositions and reshapes that leave axes whole; None
    where it is something else, or is loaded in another loop."""
    changes: list[tuple[str, str, str]] = []  # the operations from the product back to the load
    while name in tiles:
        depth, _, shape, op, rest = tiles[name]
        if depth != indent:
            return None
        if op == "tile_load":
            break
        source = re.match(r"x=([\w$.]+)", rest)
        if op not in ("tile_astype", "tile_permute", "tile_reshape") or source is None:
            return None
        changes.append((op, rest, shape))
        name = source[1]
    view = re.match(r"view=([\w$.]+)", tiles[name][4]) if name in tiles else None
    if view is None or view[1] not in views:
        return None
    dtype, extents, order, array = views[view[1]]
    tile, axes_of_array = _numbers(extents), _numbers(order)
    axes: list[int | None] = [*range(len(tile))]
    for op, rest, shape in reversed(changes):
        if op == "tile_permute":
            axes = [axes[axis] for axis in _numbers(rest.partition("axes=(")[2].partition(")")[0])]
        elif op == "tile_reshape":
            kept = [axis for axis in axes if axis is not None and tile[axis] > 1]
            after = _numbers(shape)
            if [tile[axis] for axis in kept] != [extent for extent in after if extent > 1]:
                return None
            axes = [kept.pop(0) if extent > 1 else None for extent in after]
    if (
        len(axes) < 2
        or axes[-2] is None
        or axes[-1] is None
        or any(axis is not None and tile[axis] > 1 for axis in axes[:-2])
    ):
        return None
    by_axis = [tile[axes_of_array.index(axis)] for axis in range(len(tile))]
    return _Operand(name, dtype, array, tuple(by_axis), (axes_of_array[axes[-2]], axes_of_array[axes[-1]]))


def _numbers(text: str) -> list[int]:
    return [int(one) for one in text.replace(" ", "").split(",") if one]
