"""Which image each of cuTile's driver handles came from, seen between cuTile's extension and the driver.

The extension asks `cuGetProcAddress_v2` for the driver's functions, once, before its first launch. It finds the address
of that function through `cuda.tile._load_libcuda`. The wrapper put there hands out wrapped functions in turn.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Mapping
from ctypes import c_char_p, c_int, c_uint, c_uint64, c_void_p
from typing import Any

from tilewright.frontends.images import LoadedImages
from tilewright.programs.images import whole_image

Function = Any
"""A C function: ctypes gives each prototype a class of its own."""

GET_PROC_ADDRESS = ctypes.CFUNCTYPE(c_int, c_char_p, c_void_p, c_int, c_uint64, c_void_p)
LIBRARY_LOAD_DATA = ctypes.CFUNCTYPE(
    c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_uint, c_void_p, c_void_p, c_uint
)  # library*, code, options and their values
LIBRARY_UNLOAD = ctypes.CFUNCTYPE(c_int, c_void_p)
LIBRARY_GET_KERNEL = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_char_p)  # kernel*, library, symbol
KERNEL_GET_FUNCTION = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)  # function*, kernel


def watch_driver(images: LoadedImages) -> None:
    """Note in `images` what cuTile loads from now on. It has to happen before its first launch in this process."""
    loader: Any = importlib.import_module("cuda.tile._load_libcuda")
    driver = GET_PROC_ADDRESS(_word(loader.cuGetProcAddress_v2_ptrptr))
    wrappers = _wrappers(images)

    def get_proc_address(name: bytes, out: int, version: int, flags: int, status: int | None) -> int:
        code: int = driver(name, out, version, flags, status)
        if not code and name in wrappers:
            cell = c_void_p.from_address(out)
            cell.value = _address(_forever(wrappers[name](cell.value))) if cell.value else None
        return code

    cell = _forever(c_void_p(_address(_forever(GET_PROC_ADDRESS(get_proc_address)))))
    loader.cuGetProcAddress_v2_ptrptr = ctypes.addressof(cell)


def _wrappers(images: LoadedImages) -> Mapping[bytes, Callable[[int], Function]]:
    """By the name of a driver's function, what makes of its address a function that also notes what it did."""

    def after(prototype: type[Any], note: Callable[..., None]) -> Callable[[int], Function]:
        def wrapped(address: int) -> Function:
            real = prototype(address)

            def call(*arguments: Any) -> int:
                code: int = real(*arguments)
                if not code:
                    try:
                        note(*arguments)
                    except Exception:  # C cannot take it: the handle stays unknown
                        pass
                return code

            return prototype(call)

        return wrapped

    def unloading(address: int) -> Function:
        real = LIBRARY_UNLOAD(address)

        def call(library: int) -> int:
            try:
                images.forget(library)  # first: once it is freed, another thread may be given the same handle
            except Exception:
                pass
            code: int = real(library)
            return code

        return LIBRARY_UNLOAD(call)

    return {
        b"cuLibraryLoadData": after(
            LIBRARY_LOAD_DATA, lambda out, code, *_: images.loaded(_word(out), whole_image(_at(code)))
        ),
        b"cuLibraryGetKernel": after(LIBRARY_GET_KERNEL, lambda out, library, _: images.derived(_word(out), library)),
        b"cuKernelGetFunction": after(KERNEL_GET_FUNCTION, lambda out, kernel: images.derived(_word(out), kernel)),
        b"cuLibraryUnload": unloading,
    }


def _at(address: int) -> Callable[[int, int], bytes]:
    """From an offset and a size, the bytes of this process's memory there."""
    return lambda offset, size: ctypes.string_at(address + offset, size)


def _word(address: int) -> int:
    """The pointer that lies at an address; 0 for a null pointer."""
    return c_void_p.from_address(address).value or 0


def _address(function: Function) -> int:
    return ctypes.cast(function, c_void_p).value or 0


def _forever(thing: Any) -> Any:
    """Never free what C code has the address of: cuTile unloads its libraries while Python ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing
