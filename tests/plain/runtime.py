"""The simplest language in the process that runs candidates."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import CodeType
from typing import Any

from tilewright.frontends.images import LoadedImages
from tilewright.frontends.protocol import Choice, ImageSource, Runtime, Tuner


class PlainRuntime:
    compile_errors: tuple[type[BaseException], ...] = (SyntaxError,)

    def watch_images(self) -> ImageSource:
        return LoadedImages()

    def capturing(self) -> AbstractContextManager[list[Any]]:
        return nullcontext([])

    def launched(self) -> tuple[CodeType, ...]:
        return ()

    def tuners(self) -> list[Tuner]:
        return []

    def choose(self, choice: Choice) -> None: ...


RUNTIME: Runtime = PlainRuntime()
