"""torch's allocator in a process that captures: it hands out planned addresses, one after the other.

torch calls two functions in C, which ctypes makes from Python, so that no compiler is needed. An address is never used
twice, but pages are given back when a block is freed: not while a capture holds them, and not before the GPU is done.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from cuda.bindings import driver as cuda

from tilewright.gpu.addresses import Addresses, OutOfAddresses
from tilewright.gpu.driver import DriverError, ok
from tilewright.gpu.pages import Pages

FREED_LIMIT = 4 << 30
"""Bytes of freed blocks beyond which their pages are given back."""
_Malloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_Free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)


class Arena:
    """The blocks of this process, by address: all that there were in `blocks` (bytes asked for), those that are not
    freed in `alive`."""

    def __init__(self) -> None:
        self.blocks: dict[int, int] = {}
        self.alive: dict[int, int] = {}
        self.peak_bytes = 0
        """Most bytes that were alive at once, since `reset_peak`."""
        self.exhausted = ""
        """Why a block could not be had; empty where none was refused. torch goes on with a null pointer then, so that
        whatever happens afterwards has this cause."""
        self._addresses = Addresses()
        self._pages: Pages | None = None
        self._freed: list[int] = []
        self._capturing = False
        self._callbacks: tuple[Any, Any] | None = None

    def install(self) -> None:
        """Become torch's CUDA allocator. To be called before anything in this process uses CUDA; the answers of
        `torch.cuda` about memory come from here afterwards, since torch has none for an allocator like this."""
        malloc = _Malloc(lambda size, device, stream: self._malloc(size))
        free = _Free(lambda at, size, device, stream: self._free(at))
        self._callbacks = malloc, free
        addresses = [ctypes.cast(one, ctypes.c_void_p).value or 0 for one in self._callbacks]
        torch._C._cuda_changeCurrentAllocator(torch._C._cuda_customAllocator(addresses[0], addresses[1]))
        answers = {
            "memory_allocated": lambda device=None: self.alive_bytes,
            "memory_reserved": lambda device=None: self.alive_bytes,
            "max_memory_allocated": lambda device=None: self.peak_bytes,
            "max_memory_reserved": lambda device=None: self.peak_bytes,
            "reset_peak_memory_stats": lambda device=None: self.reset_peak(),
            "reset_max_memory_allocated": lambda device=None: self.reset_peak(),
            "empty_cache": lambda: self.release(0),
            "memory_stats": lambda device=None: {
                "allocated_bytes.all.current": self.alive_bytes,
                "allocated_bytes.all.peak": self.peak_bytes,
            },
        }
        for name, answer in answers.items():
            setattr(torch.cuda, name, answer)
            setattr(torch.cuda.memory, name, answer)

    @property
    def alive_bytes(self) -> int:
        return sum(self.alive.values())

    def reset_peak(self) -> None:
        self.peak_bytes = self.alive_bytes

    def start_zone(self) -> None:
        """What is allocated from here on has the addresses of the next case. Raises `OutOfAddresses`."""
        self._addresses.start_zone()

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """No page is given back inside: a graph holds addresses."""
        self._capturing = True
        try:
            yield
        finally:
            self._capturing = False

    def release(self, limit: int = FREED_LIMIT) -> None:
        """Give back the pages of freed blocks, if they are more than `limit` bytes. Waits for the GPU."""
        if self._capturing or self._pages is None or sum(self.blocks[at] for at in self._freed) <= limit:
            return
        ok(cuda.cuCtxSynchronize(), "waiting for the GPU")
        for at in self._freed:
            self._pages.unmap(at)
        self._freed.clear()

    def _malloc(self, size: int) -> int:
        """The address of a new block, or 0: an exception cannot pass through torch."""
        try:
            if self._pages is None:
                self._pages = Pages()
            self.release()
            at = self._addresses.take(size)
            try:
                self._pages.map(at, size)
            except DriverError:
                self.release(0)
                self._pages.map(at, size)
        except (DriverError, OutOfAddresses, RuntimeError) as error:
            self.exhausted = self.exhausted or f"a block of {size} bytes cannot be had: {error}"
            return 0
        self.blocks[at] = self.alive[at] = size
        self.peak_bytes = max(self.peak_bytes, self.alive_bytes)
        return at

    def _free(self, at: int) -> None:
        if self.alive.pop(at, None) is not None:
            self._freed.append(at)
