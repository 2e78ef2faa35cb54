"""One measurement at a time on a GPU, among all Tilewright processes of a machine.

The lock lies on the GPU's device file, which every user can open and no user can replace.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tilewright.gpu.telemetry import device_file

POLL_S = 0.1
TELL_S = 2.0


class GpuBusy(Exception):
    """The GPU stayed leased to another process; the text names it."""


@contextlib.contextmanager
def lease(uuid: str, wait_s: float, on_wait: Callable[[str], None], device: Path | None = None) -> Iterator[None]:
    """Hold the GPU `uuid`, with `device` for its device file if one is given. While another process holds it, `on_wait`
    is told who; raises `GpuBusy` after `wait_s` seconds."""
    with _lock(uuid, device) as lock:
        deadline = time.monotonic() + wait_s
        tell_at = 0.0
        while not _taken(lock):
            now, who = time.monotonic(), holder_of(os.fstat(lock)) or "another process"
            if now >= deadline:
                raise GpuBusy(f"GPU {uuid} is in use by {who}; it did not get free within {wait_s:.0f} s")
            if now >= tell_at:
                on_wait(f"waiting for the GPU, in use by {who}")
                tell_at = now + TELL_S
            time.sleep(min(POLL_S, deadline - now))
        try:
            yield
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)  # closing is not enough: a fork may have the descriptor, too


def whose(uuid: str, device: Path | None = None) -> str:
    """Who holds the GPU `uuid`; empty if nobody does, or that cannot be told. `device` is as in `lease`."""
    with contextlib.suppress(OSError), _lock(uuid, device) as lock:
        if not _taken(lock):
            return holder_of(os.fstat(lock)) or "another process"
        fcntl.flock(lock, fcntl.LOCK_UN)
    return ""


def locks_folder() -> Path:
    """Where a user's own locks lie: by the account, since the referee does not have the server's environment."""
    return Path(pwd.getpwuid(os.getuid()).pw_dir) / ".local" / "state" / "tilewright" / "leases"


@contextlib.contextmanager
def _lock(uuid: str, device: Path | None) -> Iterator[int]:
    """The descriptor whose lock stands for the GPU: its device's, or, where that cannot be locked, that of a file which
    keeps apart no more than this user's processes. Raises OSError if there is neither."""
    try:
        lock = os.open(device or device_file(uuid), os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_UN)  # whether it can be locked at all
    except OSError:
        locks_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(locks_folder() / uuid, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield lock
    finally:
        os.close(lock)


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def holder_of(file: os.stat_result) -> str:
    """Who holds the lock on a file, by the kernel's list of locks; empty if that cannot be told."""
    place = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            _, kind, _, _, pid, where, *_ = line.split()
            if (kind, where) == ("FLOCK", place):
                return f"process {pid}"
    return ""
