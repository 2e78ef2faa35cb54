"""cuTile in the process that runs candidates."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from functools import cached_property
from types import CodeType
from typing import Any

import cuda.tile as ct
from cuda.tile import tune
from cuda.tile._exception import TileError
from cuda.tile._execution import kernel

from tilewright.frontends.cutile.loading import watch_driver
from tilewright.frontends.images import LoadedImages
from tilewright.interpreter.unshown import launched


class CuTileRuntime:
    compile_errors: tuple[type[BaseException], ...] = (TileError,)

    def watch_images(self) -> LoadedImages:
        return self._images

    @cached_property
    def _images(self) -> LoadedImages:
        images = LoadedImages()
        watch_driver(images)
        return images

    @contextlib.contextmanager
    def capturing(self) -> Iterator[list[Any]]:
        """A wrapper may make its kernel anew in each call. Once that is collected, its code is unloaded."""
        launch, kernels = ct.launch, list[Any]()

        def keeping(stream: Any, grid: Any, kernel: Any, arguments: Any, /, **options: Any) -> Any:
            kernels.append(kernel)
            return launch(stream, grid, kernel, arguments, **options)

        ct.launch = keeping
        try:
            yield kernels
        finally:
            ct.launch = launch

    def watch(self) -> None:
        """Note what is compiled, and what `exhaustive_search` takes, from now on."""
        search, compile_tile = tune.exhaustive_search, kernel._compile

        def compiled(self: Any, *arguments: Any, **options: Any) -> Any:
            launched.add(self._pyfunc.__code__)
            return compile_tile(self, *arguments, **options)

        kernel._compile = compiled

        def noting(search_space: Any, *arguments: Any, **options: Any) -> Any:
            found = search(search_space, *arguments, **options)
            if (count := len(search_space)) > 1:
                self._searched.setdefault(f"1 of {count} of exhaustive_search ({found.best.config})")
            return found

        tune.exhaustive_search = tune._tune.exhaustive_search = noting

    @cached_property
    def _searched(self) -> dict[str, None]:
        return {}

    def launched(self) -> Collection[CodeType]:
        return launched

    def untried(self) -> list[str]:
        return list(self._searched)


RUNTIME = CuTileRuntime()
