"""Referees that do not import torch anew: most tests that run one have a fork of a process that did (`nursery.py`).

Where a test gives referees another environment, and where a server in a process of its own starts them, they are
interpreters, as they are for users.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests import nursery
from tilewright.evaluation.evaluator import Evaluator
from tilewright.isolation.fork_server import Forked, ForkServer
from tilewright.isolation.process import kept_environment
from tilewright.task import Backend

_interpreter = Evaluator._supervised


class Supervisor:
    """One that was forked, as `asyncio.subprocess.Process` shows a child."""

    def __init__(self, forked: Forked, stdin: socket.socket, stdout: asyncio.StreamReader) -> None:
        self._forked = forked
        self.stdin = stdin
        self.stdout = stdout

    @property
    def returncode(self) -> int | None:
        return self._forked.poll()

    def terminate(self) -> None:
        os.kill(self._forked.pid, signal.SIGTERM)

    def kill(self) -> None:
        os.kill(self._forked.pid, signal.SIGKILL)

    async def wait(self) -> int:
        return await asyncio.to_thread(self._forked.wait)


class Referees:
    """Starts the referees of one process. `supervised` takes the place of the evaluators' method."""

    def __init__(self) -> None:
        self._environment = kept_environment()
        self._nursery: ForkServer | None = None

    def supervised(self, evaluator: Evaluator, channel: socket.socket) -> Any:
        module, environment = "tilewright.evaluation.referee", kept_environment()
        if (evaluator._module, evaluator.backend, environment) == (module, Backend.CPU, self._environment):
            return self._forked(evaluator, channel)
        return _interpreter(evaluator, channel)

    async def _forked(self, evaluator: Evaluator, channel: socket.socket) -> Supervisor:
        number, folder = str(nursery.CHANNEL), str(evaluator.folder)
        own = {"TILEWRIGHT_PASS_FDS": number, "TILEWRIGHT_FOLDER": folder, "TMPDIR": folder}
        command = [evaluator._module, f"{evaluator.backend}:{evaluator.arch}", folder, "{pid}", number]
        stdin, theirs = socket.socketpair()
        self._nursery = self._nursery or self._started()
        with theirs:
            forked = self._nursery.start(theirs, command, self._environment | own, Path.cwd())
        socket.send_fds(stdin, [b"."], [channel.fileno()])
        stdout = asyncio.StreamReader()
        reads = asyncio.StreamReaderProtocol(stdout)
        await asyncio.get_running_loop().connect_read_pipe(lambda: reads, forked.stdout)
        return Supervisor(forked, stdin, stdout)

    def _started(self) -> ForkServer:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-I", "-B", "-u", "-X", "faulthandler", nursery.__file__, str(theirs.fileno())],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        return ForkServer(ours, process)

    def close(self) -> None:
        if self._nursery is not None:
            self._nursery.close()
