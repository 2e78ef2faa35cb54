"""The referee's workers: started ahead of need, each used for one candidate, every failure turned into a status."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tilewright.evaluation.caches import COMPILED, compiler_variables, copy_cache
from tilewright.evaluation.candidate import GIVEN_PATH
from tilewright.evaluation.results import FROM_WORKERS, Status
from tilewright.evaluation.snapshot import Snapshot
from tilewright.frontends.protocol import Choice
from tilewright.isolation.confinement import Isolation
from tilewright.isolation.fork_server import ForkServer
from tilewright.isolation.process import ChildProcess, frames, worker_environment
from tilewright.task import Task
from tilewright.text import printable
from tilewright.wire.channel import Buffer, ChannelClosed, ChannelError, ChannelTimeout, Message, Received
from tilewright.wire.record import misfit

START_TIMEOUT_S = 120.0
LEAST_DISK = 2**20
"""Bytes of the disk under the scratch folder without which a worker does not start."""


def cpus() -> int:
    """How many workers compute at once: one for each processor that this process may use."""
    return len(os.sched_getaffinity(0))


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

    def __init__(self, process: ChildProcess, scratch: Path, given: Path) -> None:
        """`given` is a folder beside its scratch folder, to which the candidate is copied that it is to load."""
        self._process = process
        self._scratch = scratch
        self._given = given
        self._place = ""
        self._ready = False
        self._cache: Path | None = None
        self.label = ""
        self.isolation = Isolation()
        self.deadline = math.inf
        self.meanwhile: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
        """What holds while the referee waits for it."""

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
            hello, _ = self._process.channel.receive(START_TIMEOUT_S)
            self.isolation = Isolation.model_validate(hello.get("isolation"))
        except (ChannelError, ValidationError) as error:
            reason = self._process.exit_reason() or f"not ready within {START_TIMEOUT_S:.0f} s"
            self.close()
            said = self.output().strip().splitlines()[-1:]
            text = ": ".join([f"a worker could not start ({reason})", *said])
            if shutil.disk_usage(self._scratch.parent).free < LEAST_DISK:
                text = f"the disk that holds {self._scratch.parent} is full, so that {text}"
            raise self._failure(Status.VOID, f"{text}: {misfit(error)}") from None
        self._ready = True

    def request(
        self, op: str, timeout_s: float, buffers: Sequence[Buffer] = (), **message: Any
    ) -> tuple[Message, list[Received]]:
        """Send a request and wait for its reply. Raises `WorkerFailure`; after a crash or timeout it is dead."""
        with self.meanwhile():
            return self._request(op, timeout_s, buffers, message)

    def _request(
        self, op: str, timeout_s: float, buffers: Sequence[Buffer], message: Message
    ) -> tuple[Message, list[Received]]:
        self.wait_ready()
        channel = self._process.channel
        left = self.deadline - time.monotonic()
        used_up = left < timeout_s
        timeout_s = max(min(timeout_s, left), 0.01)
        try:
            started = time.monotonic()
            channel.send({"op": op, **message}, buffers, timeout_s)
            if not self._process.await_answer(timeout_s - (time.monotonic() - started)):
                raise ChannelTimeout("no answer in time")
            reply, received = channel.receive(max(timeout_s - (time.monotonic() - started), 1.0))
        except ChannelTimeout:
            self.close()
            limit = "the evaluation time of this iteration" if used_up else f"{timeout_s:.0f} s"
            text = f"no answer within {limit} {_DOING[op]}"
            raise WorkerFailure(Status.TIMEOUT, text, self.output(), self.label, used_up=used_up) from None
        except ChannelClosed:
            reason = self._process.exit_reason() or "closed its channel"
            self.close()
            where = f", in {frames(self.output())}" if frames(self.output()) else ""
            raise self._failure(Status.CRASHED, f"the process {reason} {_DOING[op]}{where}") from None
        except ChannelError as error:
            self.close()
            raise self._failure(Status.CRASHED, f"the process sent no valid answer {_DOING[op]}: {error}") from None
        status = reply.get("status")
        if status == Status.PASSED:
            return reply, received
        if not isinstance(status, str) or status not in FROM_WORKERS:
            raise self._failure(Status.CRASHED, f"the process answered with status {str(status)[:50]!r}")
        raise self._failure(Status(status), printable(str(reply.get("message", ""))[:4000]))

    @property
    def root(self) -> str:
        """Where the files of its candidate lie, as it sees them."""
        return f"{GIVEN_PATH}/{self._place}"

    def load(self, task: Task, snapshot: Snapshot, running: bool = True, tuner: Choice | None = None) -> None:
        """Import a candidate, the only one of this worker; `running` is false where it is only dumped. `tuner`: what
        its tuners take. It is shown its own files alone, and what it compiles is kept in the snapshot's cache once it
        is closed."""
        self._cache, self._place = snapshot.cache, snapshot.id
        copy_cache(snapshot.cache, self._scratch / COMPILED)
        shutil.copytree(snapshot.root, self._given / self._place, copy_function=os.link)
        self.request(
            "load",
            task.file.timeout_s,
            folder=f"{self.root}/{snapshot.task}",
            python_path=task.file.python_path,
            module=task.module,
            function=task.function,
            outputs=task.file.outputs,
            cache=str(self._scratch / COMPILED),
            frontend=task.file.frontend,
            running=running,
            forbids=task.file.library_calls == "forbid",
            tuner=tuner,
        )

    def output(self) -> str:
        """The last that the worker printed."""
        return printable(self._process.output())

    def end(self) -> None:
        """Kill the worker; what it left on disk stays until `close`."""
        self._process.kill()

    def close(self) -> None:
        """Kill the worker and delete its scratch folder."""
        self.end()
        if self._cache is not None:
            copy_cache(self._scratch / COMPILED, self._cache)
        shutil.rmtree(self._scratch, ignore_errors=True)
        shutil.rmtree(self._given, ignore_errors=True)

    def _failure(self, status: Status, message: str) -> WorkerFailure:
        return WorkerFailure(status, message, self.output(), self.label)


_DOING = {
    "load": "while it was imported",
    "inputs": "while it took its inputs",
    "call": "in a call of the entry point (compilation included)",
    "describe": "in a call of the entry point (compilation included)",
    "returned": "in calls of the entry point, one after the other",
    "time": "in timed calls",
    "profile": "in a sampled call",
    "dump": "while its kernels were compiled",
    "check": "while the checker watched it",
    "unshown": "while it was asked what it cannot show",
}


class WorkerPool:
    """Clean workers, `spares` of them started ahead of need."""

    def __init__(self, fork_server: ForkServer, backend: str, folder: Path, spares: int) -> None:
        """`backend` is BACKEND:ARCH; `folder` is where the workers' scratch folders are made."""
        self.server = fork_server
        self._backend = backend
        self._folder = folder
        self.spares = spares
        self._waiting: list[WorkerHandle] = []

    def take(self, label: str, deadline: float) -> WorkerHandle:
        """A fresh worker for the arm `label`, until `deadline` (monotonic seconds); the caller closes it. It is started
        if none waits."""
        self.prepare(1)
        worker = self._waiting.pop(0)
        worker.label, worker.deadline = label, deadline
        worker.wait_ready()
        return worker

    @contextlib.contextmanager
    def loaded(
        self,
        task: Task,
        candidates: Sequence[tuple[str, Snapshot]],
        deadline: float,
        running: bool = True,
        choices: Sequence[Choice | None] = (),
    ) -> Iterator[list[WorkerHandle]]:
        """A fresh worker for each candidate with its label, taken in this order, which import theirs side by side (see
        `WorkerHandle.load`): a process that opens a CUDA context takes its time. They end with the block. `choices`:
        what the tuners of each take, if any."""
        workers: list[WorkerHandle] = []
        try:
            self.prepare(len(candidates))
            for label, _ in candidates:
                workers.append(self.take(label, deadline))
            with ThreadPoolExecutor(len(candidates)) as threads:
                loads = [
                    threads.submit(worker.load, task, snapshot, running, choice)
                    for worker, (_, snapshot), choice in zip(
                        workers, candidates, choices or [None] * len(workers), strict=True
                    )
                ]
                wait(loads)  # for all, whatever fails: nobody else may have to do with a worker that is ended
            for load in loads:
                load.result()
            yield workers
        finally:
            self.end(workers)

    def end(self, workers: Sequence[WorkerHandle]) -> None:
        """End workers side by side, since a process takes its time to close its CUDA context."""
        if workers:
            with ThreadPoolExecutor(len(workers)) as threads:
                wait([threads.submit(worker.end) for worker in workers])
        for worker in reversed(workers):  # one by one: of those that have one cache, the first one's is kept
            worker.close()

    def refill(self) -> None:
        """Have `spares` workers wait: start those that are missing, end those beyond."""
        self.prepare(self.spares)
        beyond, self._waiting = self._waiting[self.spares :], self._waiting[: self.spares]
        self.end(beyond)

    def prepare(self, count: int) -> None:
        """Start workers until `count` wait: they get ready side by side, while the referee goes on."""
        for worker in self.waiting:
            if worker.ended:  # killed while it waited, for want of memory say
                self._waiting.remove(worker)
                worker.close()
        while len(self._waiting) < count:
            self._waiting.append(self._start())

    def wait_ready(self) -> None:
        """Wait for all that wait, before more are started: the driver, which starts one after the other, does so in any
        order."""
        for worker in self.waiting:
            try:
                worker.wait_ready()
            except WorkerFailure:  # whoever needs one starts another, and is told if that fails too
                self._waiting.remove(worker)

    def isolation(self) -> Isolation:
        """How this pool's workers are confined, by the next of them. Raises `WorkerFailure`."""
        self.prepare(1)
        self._waiting[0].wait_ready()
        return self._waiting[0].isolation

    @property
    def waiting(self) -> list[WorkerHandle]:
        """Workers that nobody has taken yet."""
        return [*self._waiting]

    def close(self) -> None:
        for worker in self._waiting:
            worker.close()
        self._waiting.clear()

    def _start(self) -> WorkerHandle:
        scratch = Path(tempfile.mkdtemp(prefix="worker-", dir=self._folder))
        given = Path(tempfile.mkdtemp(prefix="given-", dir=self._folder))
        arguments = [self._backend, str(given)]
        environment = worker_environment(scratch, compiler_variables(scratch))
        process = ChildProcess(lambda end: self.server.start(end, arguments, environment, scratch), scratch)
        return WorkerHandle(process, scratch, given)
