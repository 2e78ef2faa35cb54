"""Which image a kernel comes from.

A frontend that compiled a kernel knows: it ties the handle of a function to the bytes that it loaded. Kernels of
libraries, cuBLAS's say, are found by CUPTI, which tells of each module that any library loads. There a symbol has to
lead to one image alone; where it leads to two, nobody can say which one ran.

CUPTI's callbacks (CUDA Profiling Tools Interface, "Callback API") are reached by ctypes, since cuda-bindings does not
have them. One process has one subscriber: torch's profiler sees nothing while this one is there.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Sequence

from tilewright.frontends.protocol import ImageSource
from tilewright.gpu.cupti import cupti_library
from tilewright.programs.images import kernels
from tilewright.programs.model import ProgramError, digest_of
from tilewright.text import cut
from tilewright.worker.nodes import NotCapturable

_RESOURCE, _MODULE_LOADED = 3, 6
"""CUPTI_CB_DOMAIN_RESOURCE and CUPTI_CBID_RESOURCE_MODULE_LOADED."""
_DESCRIPTOR = 16
"""Where CUpti_ResourceData has its `resourceDescriptor`; a module's is {u32 id; size_t bytes; const char *cubin}."""
_CONVERTS = re.compile("LoadWithCast|gpu_kernel_implI")
"""In the names of torch's kernels that read one dtype and write another one."""
_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)


class LoadedModules:
    """Every cubin that is loaded in this process from now on, whoever loads it."""

    def __init__(self) -> None:
        """Subscribe. Raises RuntimeError where there is no CUPTI, or another subscriber."""
        self.images: dict[str, bytes] = {}
        self._by_symbol: dict[str, set[str]] | None = None
        self._callback = _Callback(self._seen)  # kept: CUPTI calls it as long as this process lives
        self._cupti = ctypes.CDLL(cupti_library())
        self._subscriber = ctypes.c_void_p()
        if code := self._cupti.cuptiSubscribe(ctypes.byref(self._subscriber), self._callback, None):
            raise RuntimeError(f"CUPTI cannot be subscribed to (error {code}): another profiler may be at work")
        if code := self._cupti.cuptiEnableCallback(1, self._subscriber, _RESOURCE, _MODULE_LOADED):
            raise RuntimeError(f"CUPTI does not tell of modules (error {code})")

    def of_symbol(self, symbol: str) -> list[str]:
        """The hashes of all images that hold a kernel of this name."""
        if self._by_symbol is None:
            self._by_symbol = {}
            for key, image in self.images.items():
                try:
                    names = kernels(image)
                except ProgramError:
                    continue
                for name in names:
                    self._by_symbol.setdefault(name, set()).add(key)
        return sorted(self._by_symbol.get(symbol, ()))

    def _seen(self, user: int, domain: int, event: int, data: int) -> None:
        try:
            if (domain, event) == (_RESOURCE, _MODULE_LOADED):
                module = ctypes.c_uint64.from_address(data + _DESCRIPTOR).value
                size = ctypes.c_uint64.from_address(module + 8).value
                at = ctypes.c_uint64.from_address(module + 16).value
                image = ctypes.string_at(at, size)
                self.images[digest_of(image)] = image
                self._by_symbol = None
        except Exception as error:  # an exception cannot pass through CUPTI
            print(f"a loaded module could not be read: {error!r}", file=sys.stderr)


class Images:
    """Ties kernels to images; keeps those that were asked for in `used`, by hash. `libraries` has the symbols of the
    kernels among them that are not the candidate's own."""

    def __init__(self, sources: Sequence[ImageSource], modules: LoadedModules | str) -> None:
        """`modules`: a text says why libraries are not watched."""
        self.used: dict[str, bytes] = {}
        self.libraries: dict[str, None] = {}
        self._sources = sources
        self._modules = modules
        self._keys: dict[int, str] = {}  # by the image's own identity: to hash one for each node takes its time

    def of(self, handles: Sequence[int], symbol: str) -> str:
        """The hash of the image of a kernel, by its CUfunction and CUkernel. Raises `NotCapturable`."""
        for source in self._sources:
            for handle in handles:
                if (image := source.of(handle)) is not None:
                    if symbol not in source.own():
                        self.libraries[symbol] = None
                    return self._use(image)
        if isinstance(self._modules, str):
            why = f"no frontend compiled kernel {cut(symbol, 80)}, and libraries cannot be watched: {self._modules}"
            raise NotCapturable(why)
        found = self._modules.of_symbol(symbol)
        if len(found) != 1:
            how = f"{len(found)} images hold" if found else "no image that was loaded holds"
            raise NotCapturable(f"{how} kernel {cut(symbol, 80)}, which no frontend compiled")
        self.used[found[0]] = self._modules.images[found[0]]
        if not moves_memory(symbol):
            self.libraries[symbol] = None
        return found[0]

    def _use(self, image: bytes) -> str:
        key = self._keys.get(id(image)) or self._keys.setdefault(id(image), digest_of(image))
        self.used[key] = image
        return key


def moves_memory(symbol: str) -> bool:
    """Whether a kernel is torch's fill, or its copy that keeps the dtype, by its mangled name."""
    return "FillFunctor" in symbol or ("direct_copy_kernel_cuda" in symbol and not _CONVERTS.search(symbol))
