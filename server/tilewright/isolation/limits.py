"""How much of the machine a worker and all below it may use: limits that the kernel holds, and limits watched."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterable
from pathlib import Path

import psutil

from tilewright.isolation.supervisor import group_of

FILE_LIMIT = 8 * 2**30
OPEN_FILES_LIMIT = 4096
PROCESS_LIMIT = 256
"""Processes below one worker. Compilers run a few, one for each core at most; a container may allow few more."""
THREADS_OF_USER = 8192
"""By how much the tasks of the whole user may grow; the kernel holds root to no such limit."""
MEMORY_SHARE = 0.75
"""Of the memory that was free at the start: what a worker and all below it may hold, where nothing else is set."""
SCRATCH_RESERVE = 256 * 2**20
"""Bytes of the disk under the scratch folder that a worker must leave free."""


def apply_limits() -> None:
    """Bound what this process and its children can do to the machine; called by a worker before anything else."""
    for limit, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, FILE_LIMIT),
        (resource.RLIMIT_NOFILE, OPEN_FILES_LIMIT),
        (resource.RLIMIT_NPROC, _tasks_of_user() + THREADS_OF_USER),
    ):
        _, hard = resource.getrlimit(limit)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))
    with contextlib.suppress(OSError):  # where memory runs out, the kernel ends workers first
        Path("/proc/self/oom_score_adj").write_text("1000")


_FREE = int(psutil.virtual_memory().available * MEMORY_SHARE)
MEMORY_LIMIT = int(os.environ.get("TILEWRIGHT_MEMORY_MIB", _FREE >> 20)) << 20
SCRATCH_LIMIT = int(os.environ.get("TILEWRIGHT_SCRATCH_MIB", 8192)) << 20
"""Bytes that a worker and all below it may hold in memory, and in files; users may set either in MiB."""


def overuse(pid: int, scratch: Path) -> str:
    """What process `pid` and its group take beyond their limits, in words; empty where they do not."""
    group = group_of(pid)
    if len(group) > PROCESS_LIMIT + 1:
        return f"started {len(group) - 1} processes, over the limit of {PROCESS_LIMIT}"
    held = _resident(group)
    if held > MEMORY_LIMIT:
        return f"took {held >> 20} MiB of memory, over the limit of {MEMORY_LIMIT >> 20} MiB"
    written = _size(scratch)
    if written > SCRATCH_LIMIT:
        return f"wrote {written >> 20} MiB of files, over the limit of {SCRATCH_LIMIT >> 20} MiB"
    with contextlib.suppress(OSError):
        disk = os.statvfs(scratch)
        left = disk.f_bavail * disk.f_frsize
        if left < SCRATCH_RESERVE and written > SCRATCH_RESERVE:
            return f"filled the disk: it wrote {written >> 20} MiB, and {left >> 20} MiB are left"
    return ""


def _tasks_of_user() -> int:
    """Threads that run under this user."""
    user, count = os.getuid(), 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error), process.oneshot():
            if process.uids().real == user:
                count += process.num_threads()
    return count


def _resident(pids: Iterable[int]) -> int:
    """Bytes of memory that are these processes' own; what they share with others is left out."""
    held = 0
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            memory = psutil.Process(pid).memory_info()
            held += memory.rss - memory.shared
    return held


def _size(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(place) / name).lstat().st_blocks * 512
    return total
