"""One measurement at a time on a GPU, among all Tilewright processes of a machine.

The lock lies on the GPU's device file, which every user can open and no user can replace. Who holds it says so in a
note for the other processes of the same user.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
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
    with contextlib.ExitStack() as held:
        note = _note(uuid, held)
        lock = _lock(device or device_file(uuid), note, held)
        deadline = time.monotonic() + wait_s
        tell_at = 0.0
        while not _taken(lock):
            now, who = time.monotonic(), _holder(note)
            if now >= deadline:
                raise GpuBusy(f"GPU {uuid} is in use by {who}; it did not get free within {wait_s:.0f} s")
            if now >= tell_at:
                on_wait(f"waiting for the GPU, in use by {who}")
                tell_at = now + TELL_S
            time.sleep(min(POLL_S, deadline - now))
        held.callback(fcntl.flock, lock, fcntl.LOCK_UN)  # closing is not enough: a fork may have the descriptor, too
        held.callback(_write, note, "")
        _write(note, json.dumps({"pid": os.getpid(), "since": time.strftime("%H:%M:%S")}))
        yield


def whose(uuid: str, device: Path | None = None) -> str:
    """Who holds the GPU `uuid`; empty if nobody does, or that cannot be told. `device` is as in `lease`."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as held:
        note = _note(uuid, held)
        lock = _lock(device or device_file(uuid), note, held)
        if not _taken(lock):
            return _holder(note)
        fcntl.flock(lock, fcntl.LOCK_UN)
    return ""


def notes_folder() -> Path:
    """Where this user's notes lie: by the account, since the referee does not have the server's environment. Raises
    KeyError for a user without an account."""
    return Path(pwd.getpwuid(os.getuid()).pw_dir) / ".local" / "state" / "tilewright" / "leases"


def _note(uuid: str, held: contextlib.ExitStack) -> int | None:
    """This user's note on the GPU, opened until `held` ends; None if there can be none."""
    with contextlib.suppress(OSError, KeyError):
        notes_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        return _opened(notes_folder() / uuid, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, held)
    return None


def _lock(device: Path, note: int | None, held: contextlib.ExitStack) -> int:
    """The descriptor whose lock stands for the GPU: its device's, or, if that cannot be locked, the note's, which keeps
    apart no more than this user's processes. Raises OSError if there is neither."""
    try:
        lock = _opened(device, os.O_RDONLY, held)
        fcntl.flock(lock, fcntl.LOCK_UN)  # whether it can be locked at all
        return lock
    except OSError:
        if note is None:
            raise
        return note


def _opened(path: Path, flags: int, held: contextlib.ExitStack) -> int:
    handle = os.open(path, flags | os.O_CLOEXEC, 0o600)
    held.callback(os.close, handle)
    return handle


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(note: int | None, text: str) -> None:
    if note is not None:
        with contextlib.suppress(OSError):
            os.ftruncate(note, 0)
            os.pwrite(note, text.encode(), 0)


def _holder(note: int | None) -> str:
    """Who holds the GPU, by the note; a process that has ended holds nothing."""
    try:
        said = json.loads(os.pread(-1 if note is None else note, 1024, 0))
        os.kill(said["pid"], 0)
        return f"process {said['pid']} since {said['since']}"
    except (OSError, ValueError, KeyError):
        return "another user's process" if note is not None else "another process"
