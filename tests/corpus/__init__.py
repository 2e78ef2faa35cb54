"""A corpus of correct cuTile kernels, each with host code, an input maker and an exact reference."""

from __future__ import annotations

from tests.corpus import (
    attention,
    convolution,
    elementwise,
    normalization,
    products,
    reductions,
    scans,
    splitting,
)
from tests.corpus.example import Example

FAMILIES = (
    attention,
    convolution,
    elementwise,
    normalization,
    products,
    reductions,
    scans,
    splitting,
)

EXAMPLES: tuple[Example, ...] = tuple(example for family in FAMILIES for example in family.EXAMPLES)

__all__ = ["EXAMPLES", "Example"]
