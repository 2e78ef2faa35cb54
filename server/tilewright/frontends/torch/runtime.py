"""torch in the process that runs candidates."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from types import CodeType
from typing import Any

from tilewright.frontends.images import LoadedImages
from tilewright.frontends.protocol import FRONTENDS, Choice, ImageSource, MissingPackage, Runtime, Tuner


class TorchRuntime:
    compile_errors: tuple[type[BaseException], ...] = ()
    """Kernels of torch.compile fail with Triton's errors."""

    def watch_images(self) -> ImageSource:
        """What torch.compile makes, which Triton loads. Kernels of libraries have no loader that could be watched."""
        try:
            return FRONTENDS["triton"].runtime().watch_images()
        except MissingPackage:
            return LoadedImages()

    def capturing(self) -> AbstractContextManager[list[Any]]:
        """Libraries stay loaded, and Inductor keeps its kernels as long as the function that it compiled."""
        return nullcontext([])

    def launched(self) -> Collection[CodeType]:
        """Inductor's kernels are none of the candidate's functions."""
        return ()

    def tuners(self) -> list[Tuner]:
        """Inductor takes its configs from the compiler, not from the candidate."""
        return []

    def choose(self, choice: Choice) -> None: ...


RUNTIME: Runtime = TorchRuntime()
