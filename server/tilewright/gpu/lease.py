"""One measurement at a time on a GPU, among all Tilewright processes of a machine."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

POLL_S = 2.0


class GpuBusy(Exception):
    """The GPU stayed leased to another process; the text names it."""


@contextlib.contextmanager
def lease(uuid: str, wait_s: float, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Hold the GPU `uuid`. While another holds it, `on_wait` is told who; raises `GpuBusy` after `wait_s` seconds."""
    folder = Path(tempfile.gettempdir()) / "tilewright-leases"
    folder.mkdir(exist_ok=True)
    with contextlib.suppress(PermissionError):  # another user's: it is open to all already
        folder.chmod(0o1777)
    lock = FileLock(folder / f"{uuid}.lock", mode=0o666)
    holder = folder / f"{uuid}.json"
    deadline = time.monotonic() + wait_s
    patience = 0.0
    while True:
        try:
            lock.acquire(timeout=min(patience, max(deadline - time.monotonic(), 0.0)))
            break
        except Timeout:
            who = _holder(holder)
            if time.monotonic() >= deadline:
                raise GpuBusy(f"GPU {uuid} is in use by {who}; it did not get free within {wait_s:.0f} s") from None
            on_wait(f"waiting for the GPU, in use by {who}")
            patience = POLL_S
    try:
        with contextlib.suppress(OSError):
            holder.write_text(json.dumps({"pid": os.getpid(), "since": time.strftime("%H:%M:%S")}))
        yield
    finally:
        lock.release()


def _holder(path: Path) -> str:
    try:
        data = json.loads(path.read_text())
        return f"process {data['pid']} since {data['since']}"
    except (OSError, ValueError, KeyError):
        return "another Tilewright process"
