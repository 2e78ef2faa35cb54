"""The parent of the referee and all that it starts: nothing outlives the server, whatever dies first.

Runs as `python -I -m tilewright.isolation.supervisor COMMAND...` and imports nothing heavy. SIGTERM is the server's
order to end everything. Standard input is a pipe that the server alone holds: its end means that the server is gone,
and then the server's files go too. As a subreaper it inherits, and so can kill, what outlives its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
LOOK_S = 0.1
"""Between two looks at orders, and at processes that have ended."""

# This module reads /proc itself: psutil's `children` loses what is below a process that ends during the walk, and lists
# dead processes.


def prctl(option: int, value: int | bytes) -> None:
    """Linux prctl(2) with one argument. Raises OSError where the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def name_process(name: str) -> None:
    """Have `ps` show this process as `name`, of which the kernel keeps 15 characters."""
    prctl(PR_SET_NAME, name.encode())


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when process `parent`, which started it, ends."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def read_proc(path: str) -> bytes:
    """What a small file below /proc says. Raises OSError where it is gone."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(handle, 65536)
    finally:
        os.close(handle)


def stat_of(pid: int | str) -> list[bytes]:
    """What /proc says of a process behind its name, from its state on. Raises OSError where it is gone."""
    return read_proc(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _living() -> Iterator[tuple[int, int, int]]:
    """The number, the parent and the group of every living process."""
    with os.scandir("/proc") as entries:
        names = [entry.name for entry in entries if entry.name.isdigit()]
    for name in names:
        with contextlib.suppress(OSError):
            state, parent, group, *_ = stat_of(name)
            if state != b"Z":
                yield int(name), int(parent), int(group)


def is_dead(pid: int) -> bool:
    """Whether a process has ended, though its parent may not have asked for its status."""
    try:
        return stat_of(pid)[0] == b"Z"
    except OSError:
        return True


def descendants(*roots: int) -> list[int]:
    """The living processes below `roots`."""
    children: dict[int, list[int]] = {}
    for pid, parent, _ in _living():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    queue = list(roots)
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def group_of(leader: int) -> list[int]:
    """The living processes in the group that `leader` made. Who is confined cannot leave it."""
    return [pid for pid, _, group in _living() if group == leader]


def kill_group(leader: int) -> None:
    """Kill all processes in the group that `leader` made, at once."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _kill_below(patience_s: float = 5.0) -> None:
    """Kill all below this process: all is stopped first, so that nothing forks away meanwhile."""
    deadline = time.monotonic() + patience_s
    while (found := descendants(os.getpid())) and time.monotonic() < deadline:
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        time.sleep(0.01)


def _reap_all_but(child: int) -> None:
    """Take leave of inherited processes that have ended; `child` is left to be waited for."""
    with contextlib.suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid == child:
                return
            os.waitpid(ended.si_pid, 0)


def main(command: list[str]) -> int:
    """Run `command` until it ends, SIGTERM comes, or standard input ends; then kill what is left. An exit status.

    `{pid}` in the command stands for this process, the parent whose death the child is to follow.
    """
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: orders.append(number))
    sockets = [int(text) for text in os.environ.pop("TILEWRIGHT_PASS_FDS", "").split(",") if text]
    child = subprocess.Popen(
        [part.replace("{pid}", str(os.getpid())) for part in command], stdin=subprocess.DEVNULL, pass_fds=sockets
    )
    for number in sockets:
        os.close(number)
    gone = False
    while child.poll() is None and not gone and not orders:
        gone = bool(select.select([0], [], [], LOOK_S)[0])
        _reap_all_but(child.pid)
    status = child.poll()
    _kill_below()
    if not gone and not orders:  # the referee ended first: of itself, or since the server did
        gone = bool(select.select([0], [], [], 0.5)[0])
    if gone and not orders:
        shutil.rmtree(os.environ["TILEWRIGHT_FOLDER"], ignore_errors=True)
    return status or 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
