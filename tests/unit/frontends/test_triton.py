"""Triton's images, and torch.compile's, with a stand-in for the package: it needs a GPU to load anything."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.frontends.protocol import MissingPackage, Runtime, imported_runtimes
from tilewright.frontends.torch import TORCH
from tilewright.frontends.triton import TRITON

RUNTIME = "tilewright.frontends.triton.runtime"


class CompilationError(Exception): ...


class Kernel:
    """Triton's `CompiledKernel`, as far as it is used. `utils` is there once CUDA is."""

    utils: Any = None

    def __init__(self, kernel: bytes, function: Any = None) -> None:
        self.kernel = kernel
        self.src = SimpleNamespace(fn=SimpleNamespace(fn=function))
        self.metadata = SimpleNamespace(name=kernel.decode())
        self.module: int | None = None
        self.function: int | None = None

    def _init_handles(self) -> None:
        if self.module is None:
            self.module, self.function = self.utils.load_binary(self.kernel)

    def launch_metadata(self, grid: Any, stream: Any, *arguments: Any) -> str:
        self._init_handles()
        return f"{grid} {arguments}"


def unload(kernel: Kernel) -> None:
    """What a kernel does at its end, from Triton 3.9 on."""
    if kernel.module is not None:
        kernel.utils.unload_module(kernel.module)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Kernel]]:
    """A class of kernels in a Triton that was just imported."""
    fresh = type("CompiledKernel", (Kernel,), {"__del__": unload})
    names = (
        "triton", "triton.compiler", "triton.compiler.compiler", "triton.compiler.errors", "triton.runtime",
        "triton.runtime.autotuner",
    )  # fmt: skip
    for name in names:
        monkeypatch.setitem(sys.modules, name, module_from_spec(ModuleSpec(name, None)))
    sys.modules[names[2]].__dict__["CompiledKernel"] = fresh
    sys.modules[names[3]].__dict__["CompilationError"] = CompilationError
    sys.modules[names[5]].__dict__["Autotuner"] = type("Autotuner", (), {"_bench": None})
    monkeypatch.delitem(sys.modules, RUNTIME, raising=False)
    yield fresh
    sys.modules.pop(RUNTIME, None)


class Utils:
    """Handles from a driver, which gives those anew that were freed."""

    def __init__(self) -> None:
        self.free = [(module, module + 1) for module in range(0x900, 0x100, -0x100)]

    def load_binary(self, _: bytes) -> tuple[int, int]:
        return self.free.pop()

    def unload_module(self, module: int) -> None:
        self.free.append((module, module + 1))


def test_each_function_leads_to_the_image_that_was_loaded(kernel: type[Kernel]) -> None:
    images = TRITON.runtime().watch_images()  # there is no driver yet
    kernel.utils = Utils()
    first, second = kernel(b"first"), kernel(b"second")
    for loaded in (first, second, first):
        loaded._init_handles()
    assert [images.of(loaded.function or 0) for loaded in (first, second)] == [b"first", b"second"]
    assert set(images.images()) == {b"first", b"second"}
    assert images.of(7) is None
    assert TORCH.runtime().watch_images() is images is TRITON.runtime().watch_images()


def test_kernels_of_the_candidates_own_sources_are_told_from_others(kernel: type[Kernel]) -> None:
    images = TRITON.runtime().watch_images()
    kernel.utils = Utils()
    for loaded in (kernel(b"ours", unload), kernel(b"a package's", pytest.raises), kernel(b"of a text")):
        loaded._init_handles()
    assert list(images.own()) == ["ours"]


def test_an_unloaded_image_gives_its_handle_up(kernel: type[Kernel]) -> None:
    images = TRITON.runtime().watch_images()
    kernel.utils = Utils()
    first = kernel(b"first")
    first._init_handles()
    function = first.function or 0
    del first
    assert images.of(function) is None
    second = kernel(b"second")
    second._init_handles()
    assert second.function == function
    assert images.of(function) == b"second"


def test_a_triton_that_unloads_nothing_is_watched_too(kernel: type[Kernel]) -> None:
    del kernel.__del__  # type: ignore[attr-defined]
    images = TRITON.runtime().watch_images()
    assert not hasattr(kernel, "__del__")
    kernel.utils = Utils()
    loaded = kernel(b"image")
    loaded._init_handles()
    assert images.of(loaded.function or 0) == b"image"


def test_launched_kernels_outlive_the_graph_that_holds_them(kernel: type[Kernel]) -> None:
    runtime = TRITON.runtime()
    images = runtime.watch_images()
    kernel.utils = utils = Utils()
    describe = kernel.launch_metadata
    with runtime.capturing() as kept:
        made = kernel(b"made anew in each call")
        assert made.launch_metadata((1,), 0, "x") == "(1,) ('x',)"
    assert kernel.launch_metadata is describe
    function = made.function or 0
    del made
    assert images.of(function)
    left = len(utils.free)
    kept.clear()
    assert len(utils.free) == left + 1
    assert images.of(function) is None


def test_errors_of_its_compiler_are_known_once_it_is_imported(kernel: type[Kernel]) -> None:
    def known() -> set[type[BaseException]]:
        return {kind for runtime in imported_runtimes() for kind in runtime.compile_errors}

    assert CompilationError in known()
    sys.modules["triton.compiler.errors"].__dict__.pop("CompilationError")  # a candidate's own module of that name
    sys.modules.pop(RUNTIME)
    assert CompilationError not in known()


def test_without_triton_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    message = r"frontend = 'triton' needs the package triton, which is not there: pip install 'triton>=3.6'"
    with pytest.raises(MissingPackage) as failure:
        TRITON.runtime()
    assert str(failure.value) == message
    torch: Runtime = TORCH.runtime()
    assert torch.watch_images().of(7) is None
    assert not torch.watch_images().images()


def test_torch_compile_loads_through_triton() -> None:
    config = importlib.import_module("torch._inductor.config")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in TORCH.variables.items():
            patch.setenv(name, value)
        assert config.static_cuda_launcher_default() is False
