"""Which blocks stand for a launch, where the latency model wants to know what blocks do and all of them would take long."""

from __future__ import annotations

import math
import random
from collections import Counter

import torch

from tilewright.interpreter.machine import BlockIndex, Counts

SAMPLED_BLOCKS, UNEVEN_BLOCKS = 4, 17
"""Blocks that stand for a launch, and so many where the first do different amounts of work."""
UNEVEN = 1.25
"""Loads of one block over another's, from which they do."""


def sample(grid: BlockIndex, count: int, source: random.Random) -> torch.Tensor:
    """The numbers of `count` blocks: `count - 1`, of which each axis of the grid has one somewhere in the inner half of
    each of as many equal parts (one at its edge stands for no part of it, and one that a kernel can foresee stands for
    none), and the neighbour of one of them, which shows what the two share.

    Method: M. D. McKay, R. J. Beckman, W. J. Conover, "A comparison of three methods for selecting values of input
    variables", Technometrics 1979 (Latin hypercube sampling).
    """
    parts = count - 1
    orders = [range(parts), *(source.sample(range(parts), parts) for _ in grid[1:])]
    found = []
    for places in zip(*orders, strict=True):
        x, y, z = (
            int((place + 0.25 + 0.5 * source.random()) * size / parts) for place, size in zip(places, grid, strict=True)
        )
        found.append(x + grid[0] * (y + grid[1] * z))
    return torch.tensor(sorted({*found, min(found[parts // 2] + 1, math.prod(grid) - 1)}))


def uneven(counts: Counts) -> bool:
    """Whether blocks of a sample load different amounts."""
    loads: Counter[int] = Counter()
    for by_block in counts.parts.values():
        for number, parts in by_block.items():
            loads[number] += parts.total()
    return len(loads) < counts.blocks or max(loads.values()) > UNEVEN * min(loads.values())
