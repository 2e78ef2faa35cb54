"""The parent of the referee and all that it starts: nothing outlives the server, whatever dies first.

Runs as `python -I -m tilewright.evaluation.supervisor COMMAND...` and imports nothing heavy. SIGTERM is the server's
order to end everything. Standard input is a pipe that the server alone holds: its end means that the server is gone,
and then the server's files go too. As a subreaper it also inherits, and so can kill, what a candidate detached.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def prctl(option: int, value: int) -> None:
    """Linux prctl(2) with one argument. Raises OSError where the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when process `parent`, which started it, ends."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def descendants(root: int) -> list[int]:
    """The processes below `root`, read from /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def kill_descendants(root: int, patience_s: float = 5.0) -> None:
    """Kill everything below `root`: stop it first, so that nothing forks away meanwhile, then kill, and repeat."""
    deadline = time.monotonic() + patience_s
    while (found := descendants(root)) and time.monotonic() < deadline:
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
        _reap()
        time.sleep(0.01)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


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
    watch = os.pidfd_open(child.pid)
    try:
        select.select([0, watch], [], [])
    except (OSError, ValueError):  # standard input was closed by the signal handler
        pass
    status = child.poll()
    kill_descendants(os.getpid())
    if status is None and not ordered:
        shutil.rmtree(os.environ["TILEWRIGHT_FOLDER"], ignore_errors=True)
    return status or 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
