"""The simplest entry of each registry."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tilewright.frontends.images import LoadedImages
from tilewright.frontends.protocol import Defaults, Frontend, ImageSource, Runtime


class PlainRuntime:
    compile_errors: tuple[type[BaseException], ...] = (SyntaxError,)

    def watch_images(self) -> ImageSource:
        return LoadedImages()

    def capturing(self) -> AbstractContextManager[list[Any]]:
        return nullcontext([])


class Plain(Defaults):
    """Functions of Python."""

    name = "plain"

    def runtime(self) -> Runtime:
        return PlainRuntime()


PLAIN: Frontend = Plain()
