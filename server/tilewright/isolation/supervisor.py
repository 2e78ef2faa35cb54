"""The parent of the referee and all that it starts: nothing outlives the server, whatever dies first.

Runs as `python -I -m tilewright.isolation.supervisor COMMAND...` and imports nothing heavy. SIGTERM is the server's
order to end everything. Standard input is a pipe that the server alone holds: its end means that the server is gone,
and then the server's files go too. As a subreaper it also inherits, and so can kill, what a candidate detached.
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
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36

# This module reads /proc itself. psutil's `children` loses what is below a process that ends during the walk, and lists
# dead processes. It takes half as long again, which helps a process that forks away. And it cannot list the children of
# one process without a walk over all.


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


def _children() -> dict[int, list[int]]:
    """The living children of every process, read from /proc."""
    children: dict[int, list[int]] = {}
    with os.scandir("/proc") as entries:
        names = [entry.name for entry in entries if entry.name.isdigit()]
    for name in names:
        try:
            fields = stat_of(name)
        except OSError:
            continue
        if fields[0] != b"Z":
            children.setdefault(int(fields[1]), []).append(int(name))
    return children


def _children_of(parent: int) -> list[int]:
    """The children of one process, dead ones that nobody has waited for included, oldest first, as the kernel lists
    them. Only one that ends meanwhile can make a reader miss the next."""
    found = b""
    try:
        with os.scandir(f"/proc/{parent}/task") as tasks:
            for task in tasks:
                found += read_proc(f"{task.path}/children")
    except OSError:  # a kernel that keeps no such list
        return _children().get(parent, [])
    return [int(pid) for pid in found.split()]


def is_dead(pid: int) -> bool:
    """Whether a process has ended, though its parent may not have asked for its status."""
    try:
        return stat_of(pid)[0] == b"Z"
    except OSError:
        return True


def descendants(*roots: int) -> list[int]:
    """The living processes below `roots`."""
    children = _children()
    found: list[int] = []
    queue = list(roots)
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def kill_all(listed: Callable[[], list[int]], patience_s: float = 5.0) -> None:
    """Kill what `listed` gives until it gives nothing: all is stopped first, so that nothing forks away meanwhile."""
    deadline = time.monotonic() + patience_s
    while (found := listed()) and time.monotonic() < deadline:
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
        time.sleep(0.01)


def kill_orphans() -> None:
    """Kill what detached itself from a worker that is gone: it has become a child of the supervisor, as we are."""
    supervisor, ourselves = os.getppid(), os.getpid()

    def orphans() -> list[int]:
        listed = _children_of(supervisor)
        detached = [pid for pid in listed if pid != ourselves]
        if all(map(is_dead, detached)) and (not detached or _children_of(supervisor) == listed):
            return []  # told without a walk over all processes; what a dead one left behind would be listed by now
        for pid in detached:  # at once: a walk takes longer than a process that does nothing but fork lives
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        return detached + descendants(*detached)

    kill_all(orphans)


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
    ordered = False

    def order(*_: object) -> None:
        nonlocal ordered
        ordered = True
        os.close(0)

    signal.signal(signal.SIGTERM, order)
    sockets = [int(text) for text in os.environ.pop("TILEWRIGHT_PASS_FDS", "").split(",") if text]
    child = subprocess.Popen(
        [part.replace("{pid}", str(os.getpid())) for part in command], stdin=subprocess.DEVNULL, pass_fds=sockets
    )
    for number in sockets:
        os.close(number)
    woken, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: _reap_all_but(child.pid))
    _reap_all_but(child.pid)
    gone = False
    try:
        while child.poll() is None and not (gone := 0 in select.select([0, woken], [], [])[0]):
            os.read(woken, 4096)
    except (OSError, ValueError):  # standard input was closed by the signal handler
        pass
    status = child.poll()
    kill_all(lambda: descendants(os.getpid()))
    if not gone and not ordered:  # the referee ended first: of itself, or since the server did
        gone = bool(select.select([0], [], [], 0.5)[0])
    if gone and not ordered:
        shutil.rmtree(os.environ["TILEWRIGHT_FOLDER"], ignore_errors=True)
    return status or 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
