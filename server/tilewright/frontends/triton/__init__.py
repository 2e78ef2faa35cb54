"""Triton: kernels as Python functions over blocks of pointers. An optional package."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.frontends.protocol import Defaults, Frontend, MissingPackage, Runtime, need_packages


class Triton(Defaults):
    name = "triton"
    packages: Mapping[str, str] = {"triton": "pip install 'triton>=3.6'"}
    ahead = "tilewright.frontends.triton.ahead"

    def runtime(self) -> Runtime:
        need_packages(self)
        try:
            from tilewright.frontends.triton.runtime import RUNTIME
        except ImportError as error:
            raise MissingPackage(f"this is no Triton that is known here ({error}): {self.packages['triton']}") from None
        return RUNTIME


TRITON: Frontend = Triton()
