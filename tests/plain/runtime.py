"""The simplest language in the process that runs candidates."""

from __future__ import annotations

from tilewright.frontends.images import LoadedImages
from tilewright.frontends.protocol import ImageSource, Runtime


class PlainRuntime(Runtime):
    compile_errors = (SyntaxError,)

    def watch_images(self) -> ImageSource:
        return LoadedImages()


RUNTIME = PlainRuntime()
