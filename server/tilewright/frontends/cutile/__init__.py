"""cuTile: kernels as Python functions over tiles."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.frontends.protocol import Defaults, Frontend, Runtime, need_packages


class CuTile(Defaults):
    name = "cutile"
    packages: Mapping[str, str] = {"cuda.tile": "pip install cuda-tile"}
    ahead = "tilewright.frontends.cutile.ahead"

    def runtime(self) -> Runtime:
        need_packages(self)
        from tilewright.frontends.cutile.runtime import RUNTIME

        return RUNTIME


CUTILE: Frontend = CuTile()
