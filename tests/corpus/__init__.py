"""A corpus of correct cuTile kernels, each with host code, an input maker and an exact reference."""

from __future__ import annotations

from tests.corpus import attention, blocks, operations, products, rows, sparse, tiles
from tests.corpus.example import Example

FAMILIES = (attention, blocks, operations, products, rows, sparse, tiles)
EXAMPLES: tuple[Example, ...] = tuple(example for family in FAMILIES for example in family.EXAMPLES)

__all__ = ["EXAMPLES", "Example"]
