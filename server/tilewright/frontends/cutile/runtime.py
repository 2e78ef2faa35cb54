"""cuTile in the process that runs candidates."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterator
from functools import cached_property
from pathlib import PurePath
from types import CodeType
from typing import Any

import cuda.tile as ct
from cuda.tile import tune
from cuda.tile._exception import TileError
from cuda.tile._execution import kernel

from tilewright.frontends.cutile.loading import watch_driver
from tilewright.frontends.images import LoadedImages
from tilewright.frontends.protocol import Choice, Runtime, Tuner
from tilewright.interpreter.unshown import launched

SEARCH = "exhaustive_search"


class CuTileRuntime(Runtime):
    compile_errors = (TileError,)

    def __init__(self) -> None:
        self._choice: Choice | None = None
        self._searched: dict[tuple[str, int], dict[str, int]] = {}

    def watch_images(self) -> LoadedImages:
        return self._images

    @cached_property
    def _images(self) -> LoadedImages:
        images, compile_tile = LoadedImages(), kernel._compile

        def compiled(self: Any, *arguments: Any, **options: Any) -> Any:
            found = compile_tile(self, *arguments, **options)
            images.compiled(str(found[1]), self._pyfunc.__code__.co_filename)
            return found

        kernel._compile = compiled
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

        def choosing(search_space: Any, *arguments: Any, **options: Any) -> Any:
            caller = sys._getframe(1)
            name = f"{SEARCH} at {PurePath(caller.f_code.co_filename).name}:{caller.f_lineno}"
            found = self._chosen(name, search_space) if search_space else None
            found = found or search(search_space, *arguments, **options)
            if (count := len(search_space)) > 1:
                number = [*search_space].index(found.best.config)
                self._searched.setdefault((name, count), {}).setdefault(str(found.best.config), number)
            return found

        tune.exhaustive_search = tune._tune.exhaustive_search = choosing

    def _chosen(self, name: str, space: Any) -> Any:
        """What a search answers that is told which config to take, if it is."""
        number = self._choice.of(name, len(space)) if self._choice is not None else None
        if number is None:
            return None
        taken = tune.Measurement(config=space[number], mean_us=0.0, num_samples=0, error_margin_us=0.0)
        return tune.TuningResult(best=taken, successes=(taken,), failures=())

    def launched(self) -> Collection[CodeType]:
        return launched

    def tuners(self) -> list[Tuner]:
        return [Tuner(*search, [*taken], next(iter(taken.values()))) for search, taken in self._searched.items()]

    def choose(self, choice: Choice) -> None:
        self._choice = choice


RUNTIME = CuTileRuntime()
