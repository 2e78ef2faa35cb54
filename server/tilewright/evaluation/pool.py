"""The referee's workers: started ahead of need, each used for one candidate, every failure turned into a status."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewright.evaluation.channel import Buffer, ChannelClosed, ChannelError, ChannelTimeout, Message
from tilewright.evaluation.processes import ChildProcess, worker_environment
from tilewright.evaluation.results import Status
from tilewright.task import Backend, Task

START_TIMEOUT_S = 120.0
_FROM_WORKER = {status.value for status in Status} - {Status.VOID, Status.TAMPERED}


class WorkerFailure(Exception):
    """A request to a worker did not succeed: the candidate's status, the cause, its last output, and which worker."""

    def __init__(
        self, status: Status, message: str, output: str = "", label: str = "", *, used_up: bool = False
    ) -> None:
        """`used_up`: it was the iteration's evaluation time that ended, whichever arm was running by then."""
        super().__init__(message)
        self.status = status
        self.output = output
        self.label = label
        self.used_up = used_up


class WorkerHandle:
    """One worker, from the referee's side. `label` says which arm it runs."""

    def __init__(self, process: ChildProcess, scratch: Path) -> None:
        self._process = process
        self._scratch = scratch
        self._ready = False
        self.label = ""
        self.deadline = math.inf

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.exit_reason(patience_s=0) is not None

    def wait_ready(self) -> None:
        """Wait until the worker has imported what it needs. Raises `WorkerFailure` (void) where it cannot."""
        if self._ready:
            return
        try:
            self._process.channel.receive(START_TIMEOUT_S)
        except ChannelError as error:
            reason = self._process.exit_reason() or f"not ready within {START_TIMEOUT_S:.0f} s"
            self.close()
            raise self._failure(Status.VOID, f"a worker could not start ({reason}): {error}") from None
        self._ready = True

    def request(
        self, op: str, timeout_s: float, buffers: Sequence[Buffer] = (), **message: Any
    ) -> tuple[Message, list[bytearray]]:
        """Send a request and wait for its reply. Raises `WorkerFailure`; after a crash or timeout it is dead."""
        self.wait_ready()
        channel = self._process.channel
        left = self.deadline - time.monotonic()
        used_up = left < timeout_s
        timeout_s = max(min(timeout_s, left), 0.01)
        try:
            channel.send({"op": op, **message}, buffers, timeout_s)
            reply, received = channel.receive(timeout_s)
        except ChannelTimeout:
            self.close()
            limit = "the evaluation time of this iteration" if used_up else f"{timeout_s:.0f} s"
            text = f"no answer within {limit} {_DOING[op]}"
            raise WorkerFailure(Status.TIMEOUT, text, self.output(), self.label, used_up=used_up) from None
        except ChannelClosed:
            reason = self._process.exit_reason() or "closed its channel"
            self.close()
            raise self._failure(Status.CRASHED, f"the process {reason} {_DOING[op]}") from None
        except ChannelError as error:
            self.close()
            raise self._failure(Status.CRASHED, f"the process sent no valid answer {_DOING[op]}: {error}") from None
        status = reply.get("status")
        if status == Status.PASSED:
            return reply, received
        if status not in _FROM_WORKER:
            raise self._failure(Status.CRASHED, f"the process answered with status {str(status)[:50]!r}")
        raise self._failure(Status(status), str(reply.get("message", ""))[:4000])

    def load(self, task: Task, folder: Path, cache: Path) -> None:
        """Import the candidate in the snapshot's task folder `folder`; its compile cache is `cache`."""
        self.request(
            "load",
            task.file.timeout_s,
            folder=str(folder),
            python_path=task.file.python_path,
            module=task.module,
            function=task.function,
            outputs=task.file.outputs,
            cache=str(cache),
        )

    def output(self) -> str:
        """The last that the worker printed."""
        return self._process.output()

    def close(self) -> None:
        """Kill the worker and delete its scratch folder."""
        self._process.kill()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _failure(self, status: Status, message: str) -> WorkerFailure:
        return WorkerFailure(status, message, self.output(), self.label)


_DOING = {
    "load": "while it was imported",
    "inputs": "while it took its inputs",
    "call": "in a call of the entry point (compilation included)",
    "estimate": "in its warm-up calls",
    "prepare": "while its calls were captured",
    "run": "in a timed block",
    "collect": "while its outputs were collected",
    "profile": "in a sampled call",
    "dump": "while its kernels were compiled",
}


class WorkerPool:
    """Clean workers, `spares` of them started ahead of need."""

    def __init__(self, backend: Backend, arch: str, folder: Path, spares: int) -> None:
        self._backend = backend
        self._arch = arch
        self._folder = folder
        self._spares = spares
        self._waiting: list[WorkerHandle] = []

    def take(self, label: str, deadline: float) -> WorkerHandle:
        """A fresh worker for the arm `label`, until `deadline` (monotonic seconds); the caller closes it."""
        while self._waiting and self._waiting[0].ended:  # killed while it waited, for want of memory say
            self._waiting.pop(0).close()
        worker = self._waiting.pop(0) if self._waiting else self._start()
        worker.label, worker.deadline = label, deadline
        worker.wait_ready()
        return worker

    def refill(self) -> None:
        """Start workers until `spares` wait; they get ready while the referee does something else."""
        while len(self._waiting) < self._spares:
            self._waiting.append(self._start())

    def pids(self) -> set[int]:
        return {worker.pid for worker in self._waiting}

    def close(self) -> None:
        for worker in self._waiting:
            worker.close()
        self._waiting.clear()

    def _start(self) -> WorkerHandle:
        scratch = Path(tempfile.mkdtemp(prefix="worker-", dir=self._folder))
        process = ChildProcess(
            "tilewright.evaluation.worker",
            [f"{self._backend}:{self._arch}", str(os.getpid())],
            worker_environment(scratch),
            scratch,
        )
        return WorkerHandle(process, scratch)
