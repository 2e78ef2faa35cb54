"""Which files are opened meanwhile, by the kernel's word: inotify, read from outside the processes that open them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

_IN_OPEN = 0x20
_EVENT = struct.Struct("iIII")


class Watch:
    """Notes which files are opened, in one period after another.

    The kernel's queue stays open between periods: it takes a grace period of the kernel's, 14 ms on two cores, to close
    one. What is watched is watched for its period alone, under numbers that do not come again.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._handle = -1
        self._paths: list[Path] = []
        self._watched: dict[int, Path] = {}
        self._seen: set[Path] = set()

    @contextlib.contextmanager
    def over(self, paths: Iterable[Path]) -> Iterator[None]:
        """Note which of `paths` are opened within. Raises OSError where the kernel refuses to tell."""
        if self._handle < 0:
            self._handle = _checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._paths, self._seen = [*paths], set()
        for _ in self._opened():  # of the period before: nothing is to be left that could fill the queue
            pass
        try:
            for path in self._paths:
                number = _checked(self._libc.inotify_add_watch(self._handle, os.fsencode(path), _IN_OPEN))
                self._watched[number] = path
            yield
        finally:
            for number in self._watched:
                self._libc.inotify_rm_watch(self._handle, number)  # refused where the file is gone, and its watch too
            self._watched = {}

    def unopened(self) -> list[Path]:
        """Those that nothing has opened so far in this period."""
        self._seen.update(self._watched[number] for number in self._opened() if number in self._watched)
        return [path for path in self._paths if path not in self._seen]

    def close(self) -> None:
        """Give the queue back."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _opened(self) -> Iterator[int]:
        """The numbers of what the queue holds; it is empty then."""
        while True:
            try:
                events = os.read(self._handle, 65536)
            except BlockingIOError:
                return
            at = 0
            while at < len(events):
                number, _, _, length = _EVENT.unpack_from(events, at)
                at += _EVENT.size + length
                yield number


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"inotify: {os.strerror(number)}")
    return result
