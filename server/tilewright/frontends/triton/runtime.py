"""Triton in the process that runs candidates. Inductor launches by way of it too, see `frontends/torch`."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Collection, Iterator
from functools import cached_property
from types import CodeType
from typing import Any

from triton.compiler.compiler import CompiledKernel
from triton.compiler.errors import CompilationError
from triton.runtime.autotuner import Autotuner

from tilewright.frontends.images import LoadedImages
from tilewright.frontends.protocol import Choice, Runtime, Tuner


class TritonRuntime(Runtime):
    compile_errors = (CompilationError,)

    def watch_images(self) -> LoadedImages:
        return self._images

    @cached_property
    def _images(self) -> LoadedImages:
        """Every kernel is loaded by its own `_init_handles`. Triton opens the driver in there at the earliest, so that
        it can be watched where there is no CUDA yet."""
        images = LoadedImages()
        load, unload = CompiledKernel._init_handles, getattr(CompiledKernel, "__del__", None)

        def loading(kernel: Any) -> None:
            if kernel.module is None:
                load(kernel)
                images.loaded(kernel.function, bytes(kernel.kernel))
                function = getattr(getattr(kernel.src, "fn", None), "fn", None)  # none if it was compiled from a text
                if function is not None:
                    images.compiled(kernel.metadata.name, function.__code__.co_filename)

        CompiledKernel._init_handles = loading
        if unload is not None:  # from 3.9 on

            def unloading(kernel: Any) -> None:
                images.forget(kernel.function)  # first: once it is freed, another thread may be given the same handle
                unload(kernel)

            CompiledKernel.__del__ = unloading
        return images

    @contextlib.contextmanager
    def capturing(self) -> Iterator[list[Any]]:
        """A kernel made anew in each call is unloaded once it is collected, from Triton 3.9 on. Each launch of a
        `@triton.jit` function asks its kernel for `launch_metadata`; Inductor's launches do not, and Inductor keeps
        its kernels itself."""
        describe, kernels = CompiledKernel.launch_metadata, list[Any]()

        def keeping(kernel: Any, *arguments: Any) -> Any:
            kernels.append(kernel)
            return describe(kernel, *arguments)

        CompiledKernel.launch_metadata = keeping
        try:
            yield kernels
        finally:
            CompiledKernel.launch_metadata = describe

    def launched(self) -> Collection[CodeType]:
        """What has a compiled kernel for some device. The interpreter runs kernels as Python."""
        functions = _living("triton.runtime.jit", "JITFunction")
        return {one.fn.__code__ for one in functions if any(kept[0] for kept in one.device_caches.values())}

    def tuners(self) -> list[Tuner]:
        tuners = [one for one in _living("triton.runtime.autotuner", "Autotuner") if one.cache]
        return [
            Tuner(
                one.base_fn.__name__,
                len(one.configs),
                sorted(set(map(str, one.cache.values()))),
                _place(one.configs, next(iter(one.cache.values()))),
            )
            for one in tuners
        ]

    def choose(self, choice: Choice) -> None:
        """A tuner takes the config with the least time that its `_bench` gives."""
        search = self._search

        def bench(tuner: Any, *arguments: Any, config: Any, **options: Any) -> Any:
            number = choice.of(tuner.base_fn.__name__, len(tuner.configs))
            if number is None:
                return search(tuner, *arguments, config=config, **options)
            return [float(config is not tuner.configs[number])] * 3

        Autotuner._bench = bench

    @cached_property
    def _search(self) -> Any:
        """How a tuner times a config by itself."""
        return Autotuner._bench


def _place(configs: list[Any], config: Any) -> int | None:
    """The number of a config; None for one that an `early_config_prune` made."""
    return configs.index(config) if config in configs else None


def _living(module: str, name: str) -> list[Any]:
    """All objects of a class of Triton's."""
    kind = getattr(sys.modules.get(module), name, None)
    return [one for one in gc.get_objects() if issubclass(type(one), kind)] if isinstance(kind, type) else []


RUNTIME = TritonRuntime()
