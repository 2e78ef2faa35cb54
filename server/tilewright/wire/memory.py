"""Memory that one process hands to another one without copying it: an anonymous file of a fixed size."""

from __future__ import annotations

import mmap
import os
import weakref
from functools import cached_property

_SHARED = mmap.MAP_SHARED | mmap.MAP_POPULATE
"""All pages at once: one by one, as they are touched, takes longer than to copy them."""


class Memory:
    """So many bytes. Who gets it in a frame may write to it."""

    def __init__(self, size: int) -> None:
        """Raises ValueError for a size that is not positive, OSError where there is no such memory."""
        if size < 1:
            raise ValueError(f"memory of {size} bytes")
        self._size = size
        self.fd = os.memfd_create("tilewright", os.MFD_CLOEXEC)
        weakref.finalize(self, os.close, self.fd)
        os.ftruncate(self.fd, size)

    @cached_property
    def view(self) -> memoryview:
        """Its bytes. Raises OSError where they cannot be mapped."""
        return memoryview(mmap.mmap(self.fd, self._size, _SHARED))

    def __len__(self) -> int:
        return self._size


class Reused:
    """Memory that is used again for what has the same name and size: to get it takes longer than to fill it."""

    def __init__(self, most_bytes: int = 2 << 30) -> None:
        """`most_bytes`: of what is kept."""
        self._most = most_bytes
        self._kept: dict[tuple[tuple[object, ...], int], Memory] = {}

    def of(self, name: tuple[object, ...], size: int) -> Memory:
        """What was in memory of this name is overwritten. Raises as `Memory` does."""
        found = self._kept.pop((name, size), None) or Memory(size)
        if sum(map(len, self._kept.values())) + size > self._most:
            self._kept.clear()
        if size <= self._most:
            self._kept[name, size] = found
        return found


def mapped(fd: int, size: int) -> memoryview:
    """The memory behind a descriptor, which is closed. Raises ValueError where it is smaller than `size` bytes, OSError
    where it cannot be mapped."""
    try:
        return memoryview(mmap.mmap(fd, size, _SHARED))
    finally:
        os.close(fd)
