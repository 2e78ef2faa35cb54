"""Which blocks stand for a launch, where the model wants to know what blocks do and all of them would take long."""

from __future__ import annotations

import math
import random
from collections import Counter

import torch

from tilewright.interpreter.machine import BlockIndex, Counts

POINTS, NEIGHBOURS = 3, 2
"""Points of the first sample, and blocks in a row behind each. Two pairs in a row go on at most once to another tile of
what a band's blocks have in common, where the band is two tiles high or more: so do at most half of all pairs, or four
of six where one of the rows lies in a last band of one tile."""
SAMPLED_BLOCKS, UNEVEN_BLOCKS = POINTS * (1 + NEIGHBOURS), 34
"""Blocks that stand for a launch, and so many where the first do different amounts of work, or leave out part of a
tensor."""
UNEVEN = 1.25
"""Loads of one block over another's, from which they do."""
WHOLE = 0.95
"""The share of a tensor from which blocks count as having moved all of it. A sample that moves less may hold more than
its share of the blocks at an edge, whose tiles lie outside for the most part."""
FEW_BLOCKS = 4 * UNEVEN_BLOCKS
"""Up to so many blocks all stand for a launch whose blocks do different amounts of work: points of a lattice would
fall on the same blocks."""
_STEPS = {3: (1, 2, 2), 34: (1, 13, 25)}
"""By the number of points, what a lattice advances by along each axis: all prime to that number."""


def sample(grid: BlockIndex, count: int, source: random.Random) -> torch.Tensor:
    """The numbers of `count` blocks, or of all: points of a lattice, which has one somewhere in the inner half of each
    of as many equal parts of every axis (one at an edge stands for no part, and one that a kernel can foresee stands
    for none). `SAMPLED_BLOCKS` are `POINTS` of them with `NEIGHBOURS` in a row behind each: what neighbours share.

    Method: rank-1 lattices, shifted at random; R. Cranley, T. N. L. Patterson, "Randomization of number theoretic
    methods for multiple integration", SIAM J. Numer. Anal. 1976. Half of a square of blocks is found to within 8%.
    """
    total = math.prod(grid)
    if total <= (FEW_BLOCKS if count == UNEVEN_BLOCKS else count):
        return torch.arange(total)
    parts, behind = (POINTS, NEIGHBOURS) if count == SAMPLED_BLOCKS else (count, 0)
    shifts = [source.randrange(parts) for _ in grid]
    found = []
    for point in range(parts):
        x, y, z = (
            int(((point * step + shift) % parts + 0.25 + 0.5 * source.random()) * size / parts)
            for step, shift, size in zip(_STEPS[parts], shifts, grid, strict=True)
        )
        found.append(x + grid[0] * (y + grid[1] * z))
    return torch.tensor(
        sorted({min(first, total - 1 - behind) + step for first in found for step in range(behind + 1)})
    )


def uneven(counts: Counts) -> bool:
    """Whether blocks of a sample load different amounts; not where none loads anything that is counted."""
    loads: Counter[int] = Counter()
    for by_block in counts.parts.values():
        for number, parts in by_block.items():
            loads[number] += parts.total()
    if not loads:
        return False
    return len(loads) < counts.blocks or max(loads.values()) > UNEVEN * min(loads.values())
