"""A process that has imported what a referee imports before it forks its fork server, and nothing more.

It forks supervisors, whose referees are forks, too: a test that starts one need not wait for torch. Nor does it wait
for torch's compiler: on the few MiB of a test's cases, a referee runs the reference instead. Runs as
`python -I tests/nursery.py FD`; `tests/referees.py` asks it.
"""

from __future__ import annotations

import os
import runpy
import signal
import socket
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from tilewright.evaluation import taskcode
from tilewright.isolation import fork_server, supervisor
from tilewright.task import Backend

CHANNEL = 3
"""File descriptor of a referee's end of the channel to the server."""
LAST = 1 << 16


class Referee:
    """A fork that runs a referee's program, as `subprocess.Popen` shows a child."""

    def __init__(self, command: list[str], stdin: None, pass_fds: Sequence[int]) -> None:
        self.pid = os.fork()
        if not self.pid:
            with fork_server._last_words():
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.closerange(CHANNEL + 1, LAST)
                sys.argv = command
                runpy.run_module(command[0], run_name="__main__", alter_sys=True)

    def poll(self) -> int | None:
        ended, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if ended else None


def supervise(*arguments: Any) -> None:
    """Be a supervisor. `arguments` are a referee's module and its arguments, and what is to be standard input, over
    which the referee's end of its channel comes."""
    *command, stdin = arguments
    _, [channel], _, _ = socket.recv_fds(stdin, 1, 1)
    os.dup2(stdin.detach(), 0)
    os.dup2(channel, CHANNEL)
    os.closerange(CHANNEL + 1, LAST)
    supervisor.name_process("python")
    supervisor.subprocess = SimpleNamespace(Popen=Referee, DEVNULL=None)  # type: ignore[assignment]
    raise SystemExit(supervisor.main(command))


if __name__ == "__main__":
    fork_server._imported("tilewright.evaluation.worker", "cpu")
    taskcode.SMALL_BYTES[Backend.CPU] = 8 << 20
    fork_server._serve(socket.socket(fileno=int(sys.argv[1])), supervise)
