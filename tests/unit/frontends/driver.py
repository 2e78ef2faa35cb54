"""A CUDA driver for cuTile's extension where there is none: handles are numbers, and launches do nothing."""

from __future__ import annotations

import ctypes
import itertools
import sys
import types
from ctypes import c_int, c_void_p
from typing import Any

from tilewright.frontends.cutile.loading import (
    GET_PROC_ADDRESS,
    KERNEL_GET_FUNCTION,
    LIBRARY_GET_KERNEL,
    LIBRARY_LOAD_DATA,
    LIBRARY_UNLOAD,
)

LOADER = "cuda.tile._load_libcuda"
PROTOTYPES = {
    "cuLibraryLoadData": LIBRARY_LOAD_DATA,
    "cuLibraryUnload": LIBRARY_UNLOAD,
    "cuLibraryGetKernel": LIBRARY_GET_KERNEL,
    "cuKernelGetFunction": KERNEL_GET_FUNCTION,
}
MAJOR, MINOR = 75, 76
"""Attributes of a device: its compute capability."""


class Driver:
    """`loader` stands in for cuTile's module of that name. `code` is what calls on libraries and kernels return."""

    def __init__(self) -> None:
        self.code = 0
        self.launched = 0
        self.unloaded: list[int] = []
        self._handles = itertools.count(0x1000, 16)
        self._functions: dict[bytes, Any] = {}
        self._get = GET_PROC_ADDRESS(self._get_proc_address)
        self._cell = c_void_p(ctypes.cast(self._get, c_void_p).value)
        self.loader = types.ModuleType(LOADER)
        self.loader.__dict__["cuGetProcAddress_v2_ptrptr"] = ctypes.addressof(self._cell)
        self.next_handle = 0
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))  # the extension calls it while Python ends

    def ask(self, name: str) -> Any:
        """The function of that name, as cuTile's extension gets it."""
        getter = GET_PROC_ADDRESS(c_void_p.from_address(self.loader.cuGetProcAddress_v2_ptrptr).value)
        cell = c_void_p()
        assert getter(name.encode(), ctypes.addressof(cell), 12000, 0, None) == 0
        return PROTOTYPES[name](cell.value)

    def _get_proc_address(self, name: bytes, out: int, *_: Any) -> int:
        function = self._functions.setdefault(name, self._function(name.decode()))
        c_void_p.from_address(out).value = ctypes.cast(function, c_void_p).value
        return 0

    def _function(self, name: str) -> Any:
        if name == "cuLibraryUnload":
            return LIBRARY_UNLOAD(self._unload)
        if name in PROTOTYPES:
            return PROTOTYPES[name](self._new_handle)
        if name == "cuDeviceGetAttribute":
            return ctypes.CFUNCTYPE(c_int, c_void_p, c_int, c_int)(_attribute)
        if name in ("cuDriverGetVersion", "cuDeviceGetCount"):
            number = 1 if name == "cuDeviceGetCount" else 13000
            return ctypes.CFUNCTYPE(c_int, c_void_p)(lambda out: _put(out, number))
        if name == "cuLaunchKernelEx":
            return ctypes.CFUNCTYPE(c_int)(self._launch)
        return ctypes.CFUNCTYPE(c_int)(lambda: 0)

    def _new_handle(self, out: int, *_: Any) -> int:
        if not self.code:
            c_void_p.from_address(out).value = self.next_handle or next(self._handles)
            self.next_handle = 0
        return self.code

    def _unload(self, library: int) -> int:
        self.unloaded.append(library)
        return self.code

    def _launch(self) -> int:
        self.launched += 1
        return 0


def _attribute(out: int, which: int, _: int) -> int:
    return _put(out, {MAJOR: 9, MINOR: 0}.get(which, 1))


def _put(out: int, number: int) -> int:
    c_int.from_address(out).value = number
    return 0


def installed() -> Driver:
    """The driver of this process from now on."""
    driver = Driver()
    sys.modules[LOADER] = driver.loader
    return driver
