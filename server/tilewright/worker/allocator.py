"""torch's allocator in a process that captures: it hands out planned addresses, one after the other.

torch calls two functions in C, which ctypes makes from Python, so that no compiler is needed. An address is never used
twice, but pages are given back when a block is freed: not while a capture holds them, not what was freed within one,
and not before the GPU is done. torch's threads allocate too: what several of them touch is read and replaced at once.
"""

from __future__ import annotations

import ctypes
import threading
from collections import defaultdict
from typing import Any

import torch
from cuda.bindings import driver as cuda

from tilewright.gpu.addresses import Addresses, rounded
from tilewright.gpu.driver import DriverError, ok
from tilewright.gpu.pages import Pages

FREED_LIMIT = 4 << 30
"""Bytes of freed pages beyond which they are given back."""
_Malloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_Free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)


class Arena:
    """The blocks of this process, by address: all that there were in `blocks` (bytes asked for), those that are not
    freed in `alive`."""

    def __init__(self) -> None:
        self.blocks: dict[int, int] = {}
        self.alive: dict[int, int] = {}
        self.alive_bytes = 0
        self.peak_bytes = 0
        """Most bytes that were alive at once, since `reset_peak`."""
        self.exhausted = ""
        """Why a block could not be had; empty where none was refused. torch goes on with a null pointer then, so that
        whatever happens afterwards has this cause."""
        self._addresses = Addresses()
        self._pages: Pages | None = None
        self._freed: list[int] = []
        self._freed_bytes = 0
        self._within: list[int] = []
        self._captures = 0
        self._turn = threading.RLock()  # of one thread: a block may be freed while another is made
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
            "memory_stats": lambda device=None: defaultdict(
                int,
                {
                    "allocated_bytes.all.current": self.alive_bytes,
                    "allocated_bytes.all.peak": self.peak_bytes,
                },
            ),
        }
        for name, answer in answers.items():
            setattr(torch.cuda, name, answer)
            setattr(torch.cuda.memory, name, answer)

    def reset_peak(self) -> None:
        self.peak_bytes = self.alive_bytes

    def start_zone(self, zone: int) -> None:
        """What is allocated from here on has the addresses of a zone. Raises `OutOfAddresses`."""
        with self._turn:
            self._addresses.start_zone(zone)

    def start_capture(self) -> None:
        """What is allocated from here on has the addresses of a case's captured call."""
        with self._turn:
            self._addresses.start_capture()

    def reset(self) -> bool:
        """Begin anew at the first address. Whether it did: not while a block is alive. Waits for the GPU."""
        with self._turn:
            if self.alive or self._captures:
                return False
            if self._pages is not None:
                ok(cuda.cuCtxSynchronize(), "waiting for the GPU")
                self._pages.clear()
            self.blocks.clear()
            self._freed, self._freed_bytes, self._within = [], 0, []
            self._addresses = Addresses()
            return True

    def hold_pages(self) -> None:
        """A capture begins: no page is given back until it ends, and none of a block that is freed within it as long as
        its graph may be launched. Captures may lie in one another."""
        self._captures += 1

    def let_pages_go(self) -> None:
        """A capture has ended."""
        self._captures -= 1

    @property
    def freed_within(self) -> int:
        """How many blocks were freed within captures, whose pages are not given back."""
        return len(self._within)

    def forget_captured(self, count: int) -> None:
        """The pages of those that were freed later than the first `count` may be given back: their graph is gone."""
        with self._turn:
            self._freed += self._within[count:]
            self._freed_bytes += sum(rounded(self.blocks[at]) for at in self._within[count:])
            del self._within[count:]

    def release(self, limit: int = FREED_LIMIT) -> None:
        """Give back the pages of freed blocks, if they are more than `limit` bytes. Waits for the GPU."""
        with self._turn:
            if self._captures or self._pages is None or self._freed_bytes <= limit:
                return
            freed, self._freed, self._freed_bytes = self._freed, [], 0
            ok(cuda.cuCtxSynchronize(), "waiting for the GPU")
            for at in freed:
                self._pages.unmap(at)

    def _malloc(self, size: int) -> int:
        """The address of a new block, or 0: an exception cannot pass through torch."""
        try:
            with self._turn:
                if self._pages is None:
                    self._pages = Pages()
                self.release()
                at = self._addresses.take(size)
                try:
                    self._pages.map(at, size)
                except DriverError:
                    self.release(0)
                    self._pages.map(at, size)
                self.blocks[at] = self.alive[at] = size
                self.alive_bytes += size
                self.peak_bytes = max(self.peak_bytes, self.alive_bytes)
                return at
        except Exception as error:
            self.exhausted = self.exhausted or f"a block of {size} bytes cannot be had: {error}"
            return 0

    def _free(self, at: int) -> None:
        with self._turn:
            size = self.alive.pop(at, None)
            if size is None:
                return
            self.alive_bytes -= size
            if self._captures:
                self._within.append(at)
            else:
                self._freed.append(at)
                self._freed_bytes += rounded(size)
