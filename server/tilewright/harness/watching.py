"""Which files are opened meanwhile, by the kernel's word: inotify, read from outside the processes that open them."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

_IN_OPEN = 0x20
_EVENT = struct.Struct("iIII")


class Watch:
    """A context manager that notes which of `paths` are opened. Raises OSError where the kernel refuses to tell."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = [*paths]
        self._watched: dict[int, Path] = {}
        self._handle = -1
        self._seen: set[Path] = set()

    def __enter__(self) -> Watch:
        libc = ctypes.CDLL(None, use_errno=True)
        self._handle = _checked(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        for path in self._paths:
            self._watched[_checked(libc.inotify_add_watch(self._handle, os.fsencode(path), _IN_OPEN))] = path
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._handle)

    def unopened(self) -> list[Path]:
        """Those that nothing has opened so far."""
        while True:
            try:
                events = os.read(self._handle, 65536)
            except BlockingIOError:
                return [path for path in self._paths if path not in self._seen]
            while events:
                number, _, _, length = _EVENT.unpack_from(events)
                events = events[_EVENT.size + length :]
                if number in self._watched:
                    self._seen.add(self._watched[number])


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"inotify: {os.strerror(number)}")
    return result
