"""The programs of many versions of a candidate, for a race: each call is captured once.

Several workers capture at once. Each takes one version after the other, since to open its CUDA context a process takes
half a second: the versions are those of one author, and no verdict rests on a race. Nothing is measured here.
"""

from __future__ import annotations

import contextlib
import os
import queue
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from dataclasses import replace
from pathlib import Path
from threading import Event

from tilewright.evaluation.pool import WorkerFailure, cpus
from tilewright.evaluation.results import ORIGINAL, Raced, Status
from tilewright.gpu.addresses import ZONES
from tilewright.isolation.fork_server import ForkServer
from tilewright.programs.model import Program
from tilewright.referee.capture_worker import CaptureWorker, Entry, EntryFailed, InProcess
from tilewright.referee.captures import Arguments, captured_call, set_arguments

MOST_WORKERS = 8
WORKER_BYTES = 5 << 30
"""Of the GPU's memory, for a worker's context and the freed memory that it keeps, beside what its calls take."""


def capture_variants(
    server: ForkServer,
    entries: Sequence[Entry],
    calls: Sequence[Arguments],
    limit_s: float,
    room: int,
    look: Callable[[], None],
    tell: Callable[[str], None],
) -> list[list[Program] | Raced]:
    """Of each version, the first of which is the original, the program of each call, or how it failed. They lie in one
    folder, which all workers may read. `limit_s`: for an import, or for the calls of one capture. `room`: bytes of the
    GPU's memory that workers may take together. `look` is called now and then, and may raise. Raises `WorkerFailure`
    where the original fails or no worker can start."""
    stop, made = Event(), list[_Line]()
    with contextlib.ExitStack() as ending:
        scratch = tempfile.TemporaryDirectory(prefix="tilewright-variants-", ignore_cleanup_errors=True)
        folder = Path(ending.enter_context(scratch))
        ending.callback(_close, made)
        readable = Path(os.path.commonpath([place for entry in entries for place in (*entry.readable, entry.folder)]))
        lines: queue.SimpleQueue[_Line] = queue.SimpleQueue()

        def line() -> _Line:
            made.append(_Line(server, calls, limit_s, Path(tempfile.mkdtemp(dir=folder)), stop))
            return made[-1]

        def work(entry: Entry) -> list[Program] | Raced:
            taken = lines.get()
            try:
                return taken.programs(replace(entry, readable=(readable,)))
            finally:
                lines.put(taken)

        first = line()
        lines.put(first)
        found: dict[int, list[Program] | Raced] = {ORIGINAL: work(entries[ORIGINAL])}
        if isinstance(failed := found[ORIGINAL], Raced):
            raise WorkerFailure(failed.status, failed.message)
        each = WORKER_BYTES + first.peak_bytes + max(sum(map(len, call.tensors)) for call in calls)
        count = max(min(MOST_WORKERS, cpus(), room // each, len(entries) - 1), 1)
        for _ in range(count - 1):
            lines.put(line())
        with ThreadPoolExecutor(count) as threads:
            try:
                running = {
                    threads.submit(work, entry): number for number, entry in enumerate(entries) if number != ORIGINAL
                }
                for done in as_completed(running):
                    found[running[done]] = done.result()
                    tell(f"captured {len(found)} of {len(entries)} configs")
                    look()
            except BaseException:
                stop.set()
                threads.shutdown(cancel_futures=True)
                raise
    return [found[number] for number in range(len(entries))]


def _close(lines: Sequence[_Line]) -> None:
    """End workers side by side, since a process takes its time to close its CUDA context."""
    if lines:
        with ThreadPoolExecutor(len(lines)) as threads:
            wait([threads.submit(line.close) for line in lines])


class _Line:
    """A worker that captures one version after the other; a new one after a version that fails otherwise than in its
    compiler, whose process may be in any state."""

    def __init__(
        self, server: ForkServer, calls: Sequence[Arguments], limit_s: float, scratch: Path, stop: Event
    ) -> None:
        self._server = server
        self._calls = calls
        self._limit_s = limit_s
        self._scratch = scratch
        self._stop = stop
        self._worker: CaptureWorker | None = None
        self.peak_bytes = 0
        """Most bytes that a call took beyond its arguments."""

    def programs(self, entry: Entry) -> list[Program] | Raced:
        """Of each call. A version that fails in a worker where another was before has a second try in a fresh one.
        Raises `WorkerFailure` (void)."""
        again = self._worker is not None
        while True:
            try:
                return self._captured(entry)
            except EntryFailed as failed:
                compiles = failed.status != Status.COMPILE_ERROR
                if compiles or self._worker is None or not self._worker.loaded:
                    self.close()
                if not again or not compiles or failed.status == Status.TIMEOUT:
                    return Raced(status=Status(failed.status), message=str(failed))
            except InProcess as why:
                self.close()
                if not again:
                    return Raced(
                        status=Status.NOT_REPLAYED, message=f"it cannot be replayed, try it with run_benchmark: {why}"
                    )
            except RuntimeError as error:
                raise WorkerFailure(Status.VOID, str(error)) from None
            again = False

    def _captured(self, entry: Entry) -> list[Program]:
        found = []
        for number, call in enumerate(self._calls):
            zone = 1 + number % (ZONES - 1)
            if number and zone == 1:  # its addresses are used up
                self.close()
            worker = self._loaded(entry, again=zone == 1)
            set_arguments(worker, call, zone, self._limit_s)
            program, told = captured_call(worker, call, self._limit_s)
            self.peak_bytes = max(self.peak_bytes, told.peak_bytes)
            found.append(program)
        return found

    def _loaded(self, entry: Entry, again: bool) -> CaptureWorker:
        """The worker, which has imported the entry point, or is about to. `again`: whether it begins with it."""
        if self._worker is None:
            self._worker = CaptureWorker(self._server, entry, self._scratch, stop=self._stop)
        elif again:
            self._worker.take(entry)
        return self._worker

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.close()
        self._worker = None
