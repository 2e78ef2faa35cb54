"""cuTile: kernels as Python functions over tiles."""

from __future__ import annotations

from tilewright.frontends.protocol import Frontend

CUTILE = Frontend("cutile", __name__, {"cuda.tile": "pip install cuda-tile"}, ahead="tilewright.frontends.cutile.ahead")
