"""Which blocks stand for a launch, where the model wants to know what blocks do and all of them would take long."""

from __future__ import annotations

import math
import random
from collections import Counter

import torch

from tilewright.interpreter.machine import BlockIndex, Counts

NEIGHBOURS = 2
"""Blocks in a row behind two of a sample. Of the two pairs of such a row at most one goes on to another tile of what a
band's blocks have in common, where all bands are at least two tiles high: at most half of all pairs."""
SAMPLED_BLOCKS, UNEVEN_BLOCKS = 3 + 2 * NEIGHBOURS, 34
"""Blocks that stand for a launch, and so many where the first do different amounts of work."""
UNEVEN = 1.25
"""Loads of one block over another's, from which they do."""
_STEPS = {3: (1, 2, 2), 34: (1, 13, 25)}
"""By the number of points, what a lattice advances by along each axis: all prime to that number."""


def sample(grid: BlockIndex, count: int, source: random.Random) -> torch.Tensor:
    """The numbers of `count` blocks, or of all: points of a lattice, which has one somewhere in the inner half of each
    of as many equal parts of every axis (one at an edge stands for no part, and one that a kernel can foresee stands
    for none). Among `SAMPLED_BLOCKS` are `NEIGHBOURS` in a row behind two of them, which show what neighbours share.

    Method: rank-1 lattices, shifted at random; R. Cranley, T. N. L. Patterson, "Randomization of number theoretic
    methods for multiple integration", SIAM J. Numer. Anal. 1976. Half of a square of blocks is found to within 8%.
    """
    total = math.prod(grid)
    if total <= count:
        return torch.arange(total)
    parts = 3 if count == SAMPLED_BLOCKS else count
    shifts = [source.randrange(parts) for _ in grid]
    found = []
    for point in range(parts):
        x, y, z = (
            int(((point * step + shift) % parts + 0.25 + 0.5 * source.random()) * size / parts)
            for step, shift, size in zip(_STEPS[parts], shifts, grid, strict=True)
        )
        found.append(x + grid[0] * (y + grid[1] * z))
    rows = [min(first, total - 1 - NEIGHBOURS) for first in found[1:]] if count == SAMPLED_BLOCKS else []
    return torch.tensor(sorted({*found, *(first + step for first in rows for step in range(NEIGHBOURS + 1))}))


def uneven(counts: Counts) -> bool:
    """Whether blocks of a sample load different amounts; not where none loads anything that is counted."""
    loads: Counter[int] = Counter()
    for by_block in counts.parts.values():
        for number, parts in by_block.items():
            loads[number] += parts.total()
    if not loads:
        return False
    return len(loads) < counts.blocks or max(loads.values()) > UNEVEN * min(loads.values())
