"""Which blocks stand for a launch, where the model wants to know what blocks do and all of them would take long."""

from __future__ import annotations

import math

import torch

from tilewright.interpreter.machine import BlockIndex

SAMPLED_BLOCKS = 34
_STEPS = (1, 13, 25)
"""How far along each axis the next part lies: all prime to the number of parts."""


def sample(grid: BlockIndex) -> torch.Tensor:
    """The numbers of the blocks that stand for a launch: all of a small one, else one in each of `SAMPLED_BLOCKS` equal
    parts of every axis, since blocks at an edge do less work."""
    total = math.prod(grid)
    if total <= 2 * SAMPLED_BLOCKS:
        return torch.arange(total)
    numbers = set()
    for point in range(SAMPLED_BLOCKS):
        x, y, z = (
            int((point * step % SAMPLED_BLOCKS + 0.5) * size / SAMPLED_BLOCKS)
            for step, size in zip(_STEPS, grid, strict=True)
        )
        numbers.add(x + grid[0] * (y + grid[1] * z))
    return torch.tensor(sorted(numbers))
