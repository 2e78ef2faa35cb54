"""A corpus of correct cuTile kernels, each with host code, an input maker and an exact reference."""

from __future__ import annotations

from tests.corpus import (
    elementwise,
    normalization,
    products,
    splitting,
)
from tests.corpus.example import Example

FAMILIES = (
    elementwise,
    normalization,
    products,
    splitting,
)

EXAMPLES: tuple[Example, ...] = tuple(example for family in FAMILIES for example in family.EXAMPLES)

__all__ = ["EXAMPLES", "Example"]
