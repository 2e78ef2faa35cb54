"""Which blocks stand for a launch, where the model wants to know what blocks do and all of them would take long."""

from __future__ import annotations

import math
import random

import torch

from tilewright.interpreter.machine import BlockIndex

SAMPLED_BLOCKS = 34
_STEPS = (1, 13, 25)
"""How far along each axis the next part lies: all prime to the number of parts."""


def sample(grid: BlockIndex, source: random.Random) -> torch.Tensor:
    """The numbers of the blocks that stand for a launch: all of a small one, else one in each of `SAMPLED_BLOCKS` equal
    parts of every axis.

    Blocks at an edge do less work. A sample drawn without regard to axes holds too many of them now and then, so that
    an honest kernel seems to leave out work.

    Method: rank-1 lattices, shifted at random; R. Cranley, T. N. L. Patterson, "Randomization of number theoretic
    methods for multiple integration", SIAM J. Numer. Anal. 1976.
    """
    total = math.prod(grid)
    if total <= 2 * SAMPLED_BLOCKS:
        return torch.arange(total)
    shifts = [source.randrange(SAMPLED_BLOCKS) for _ in grid]
    numbers = set()
    for point in range(SAMPLED_BLOCKS):
        x, y, z = (
            int(((point * step + shift) % SAMPLED_BLOCKS + 0.25 + 0.5 * source.random()) * size / SAMPLED_BLOCKS)
            for step, shift, size in zip(_STEPS, shifts, grid, strict=True)
        )
        numbers.add(x + grid[0] * (y + grid[1] * z))
    return torch.tensor(sorted(numbers))
