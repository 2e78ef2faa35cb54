"""cuTile's images, by the handles that the driver gave out."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from ctypes import c_void_p
from pathlib import Path
from typing import Any

import pytest

from tests.unit.frontends.driver import LOADER, Driver
from tests.unit.programs.made import cubin
from tilewright.frontends.cutile.loading import watch_driver
from tilewright.frontends.images import LoadedImages
from tilewright.programs.images import kernels

HOPPER, BLACKWELL = cubin("fill", "sm_90"), cubin("fill", "sm_100")


class CuTile:
    """What cuTile's extension does with the driver's functions."""

    def __init__(self, driver: Driver) -> None:
        self.ask = driver.ask

    def load(self, image: bytes, tail: bytes = b"left over") -> int:
        buffer = ctypes.create_string_buffer(image + tail)
        return self._given("cuLibraryLoadData", ctypes.addressof(buffer), None, None, 0, None, None, 0)

    def kernel(self, library: int, symbol: bytes = b"fill") -> int:
        return self._given("cuLibraryGetKernel", library, symbol)

    def function(self, kernel: int) -> int:
        return self._given("cuKernelGetFunction", kernel)

    def unload(self, library: int) -> None:
        assert self.ask("cuLibraryUnload")(library) == 0

    def _given(self, name: str, *arguments: Any) -> int:
        out = c_void_p()
        assert self.ask(name)(ctypes.addressof(out), *arguments) == 0
        return out.value or 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    monkeypatch.setitem(sys.modules, LOADER, driver.loader)
    return driver


@pytest.fixture
def images(driver: Driver) -> LoadedImages:
    images = LoadedImages()
    watch_driver(images)
    return images


@pytest.fixture
def cutile(driver: Driver, images: LoadedImages) -> CuTile:
    return CuTile(driver)


def test_libraries_with_the_same_symbol_are_told_apart(cutile: CuTile, images: LoadedImages) -> None:
    assert kernels(HOPPER) == kernels(BLACKWELL) == {"fill"}
    libraries = [cutile.load(image) for image in (HOPPER, BLACKWELL)]
    found = [cutile.kernel(library) for library in libraries]
    functions = [cutile.function(kernel) for kernel in found]
    for handles in (libraries, found, functions):
        assert [images.of(handle) for handle in handles] == [HOPPER, BLACKWELL]
    assert set(images.images()) == {HOPPER, BLACKWELL}


def test_an_unknown_handle_has_no_image(cutile: CuTile, images: LoadedImages) -> None:
    assert images.of(7) is None
    kernel = cutile.kernel(library=7)  # loaded before anybody watched
    assert images.of(kernel) is images.of(cutile.function(kernel)) is None


def test_a_freed_handle_is_forgotten_with_its_kernels(driver: Driver, cutile: CuTile, images: LoadedImages) -> None:
    library = cutile.load(HOPPER)
    kernel = cutile.kernel(library)
    function = cutile.function(kernel)
    cutile.unload(library)
    assert driver.unloaded == [library]
    assert images.of(library) is images.of(kernel) is images.of(function) is None
    assert set(images.images()) == {HOPPER}
    driver.next_handle = library
    assert cutile.load(BLACKWELL) == library
    assert images.of(library) == BLACKWELL
    assert images.of(kernel) is None


def test_what_the_driver_refuses_is_not_noted(driver: Driver, images: LoadedImages) -> None:
    driver.code = 200
    out, buffer = c_void_p(), ctypes.create_string_buffer(HOPPER)
    load = driver.ask("cuLibraryLoadData")
    assert load(ctypes.addressof(out), ctypes.addressof(buffer), None, None, 0, None, None, 0) == 200
    assert not images.images()


def test_code_that_is_no_cubin_takes_an_old_image_from_its_handle(
    driver: Driver, cutile: CuTile, images: LoadedImages
) -> None:
    library = cutile.load(HOPPER)
    driver.next_handle = library
    cutile.load(b".version 8.8\n.target sm_90\n\0" + bytes(64))
    assert images.of(library) is None
    assert images.of(cutile.kernel(library)) is None


def test_no_error_of_ours_reaches_the_caller(cutile: CuTile, images: LoadedImages, monkeypatch: Any) -> None:
    def failing(*_: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(images, "loaded", failing)
    monkeypatch.setattr(images, "forget", failing)
    library = cutile.load(HOPPER)
    assert library
    assert images.of(library) is None
    cutile.unload(library)


def test_cutile_itself_loads_its_kernels_this_way() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.frontends.launching"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
