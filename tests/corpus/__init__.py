"""A corpus of correct cuTile kernels, each with host code, an input maker and an exact reference."""

from __future__ import annotations

from tests.corpus import (
    arguments,
    atomics,
    attention,
    control,
    convolution,
    elementwise,
    lowprecision,
    modes,
    movement,
    normalization,
    operations,
    products,
    reductions,
    scans,
    sparse,
    splitting,
)
from tests.corpus.example import Example

FAMILIES = (
    arguments,
    atomics,
    attention,
    control,
    convolution,
    elementwise,
    lowprecision,
    modes,
    movement,
    normalization,
    operations,
    products,
    reductions,
    scans,
    sparse,
    splitting,
)

EXAMPLES: tuple[Example, ...] = tuple(example for family in FAMILIES for example in family.EXAMPLES)

__all__ = ["EXAMPLES", "Example"]
