"""A worker that calls an entry point, from the referee's side."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Literal, TypeVar

from tilewright.evaluation.caches import compiler_variables
from tilewright.evaluation.results import FROM_WORKERS, Status
from tilewright.isolation.fork_server import ForkServer
from tilewright.isolation.process import ChildProcess, frames, worker_environment
from tilewright.text import printable
from tilewright.wire.channel import ChannelClosed, ChannelError, ChannelTimeout, Received, Sent
from tilewright.wire.messages import (
    CandidateFailed,
    Done,
    FromWorker,
    Link,
    LoadEntry,
    Message,
    NotCaptured,
    WorkerReady,
)

START_S = 120.0
Reply = TypeVar("Reply", bound=Message)


@dataclass(frozen=True)
class Entry:
    """What a worker loads. `readable`: folders that it may read beside its own. `root`: the snapshot's folder, above
    all paths here. If it is set, the worker finds what the workers that check have compiled."""

    folder: Path
    module: str
    function: str
    frontend: str
    import_paths: tuple[Path, ...] = ()
    outputs: tuple[str, ...] = ()
    readable: tuple[Path, ...] = ()
    label: str = ""
    root: Path | None = None


class InProcess(Exception):
    """A call that ran and cannot be replayed, and why. `arm`: of two programs, the one that cannot be."""

    def __init__(self, reason: str, arm: int | None = None) -> None:
        super().__init__(reason)
        self.arm = arm


class EntryFailed(Exception):
    """The entry point failed: a status, a message, and what its process printed last."""

    def __init__(self, status: str, message: str, output: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.output = output


class CaptureWorker:
    """A worker process, from the referee's side; `scratch` is the one folder that it may write to. One of the kind
    "capture" makes programs, one of the kind "ordinary" records launches. A context manager: the process ends with the
    block."""

    def __init__(
        self,
        server: ForkServer,
        entry: Entry,
        scratch: Path,
        kind: Literal["capture", "ordinary"] = "capture",
        stop: Event | None = None,
    ) -> None:
        """Once `stop` is set, no answer comes. Raises RuntimeError where no worker can be had."""
        self._entry = entry
        self._stop = stop
        self._loaded = False
        home = Path(tempfile.mkdtemp(prefix="home-", dir=scratch))  # what a tuner writes down there, no other reads
        environment = worker_environment(home, compiler_variables(scratch))
        folders = [str(path) for path in dict.fromkeys((entry.folder, *entry.import_paths, *entry.readable))]
        self._process = ChildProcess(lambda end: server.start(end, [kind, *folders], environment, scratch), scratch)
        self._link: Link[FromWorker] = Link(self._process.channel, FromWorker)
        self._ready = False

    def __enter__(self) -> CaptureWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def load(self, limit_s: float) -> None:
        """Have it import the entry point, unless it has. Raises as `ask` does."""
        if self._loaded:
            return
        entry = self._entry
        message = LoadEntry(
            folder=str(entry.folder),
            import_paths=[str(path) for path in entry.import_paths],
            module=entry.module,
            function=entry.function,
            outputs=list(entry.outputs),
            frontend=entry.frontend,
            root=str(entry.root or ""),
        )
        self.ask(message, Done, (), limit_s)
        self._loaded = True

    @property
    def loaded(self) -> bool:
        """Whether it has imported its entry point."""
        return self._loaded

    def take(self, entry: Entry) -> None:
        """Have it import another entry point in the place of this one, once it is to load. It has to be able to read
        that one's folders."""
        self._entry, self._loaded = entry, False

    def ask(
        self, message: Message, kind: type[Reply], buffers: Sequence[Sent], limit_s: float
    ) -> tuple[Reply, list[Received]]:
        """Raises `EntryFailed` for a candidate that fails, crashes or takes too long, `InProcess`, and RuntimeError
        where the worker cannot start."""
        if self._stop is not None and self._stop.is_set():
            raise EntryFailed("timeout", "it was given up")
        self._await_start()
        with self._failing(limit_s):
            self._link.send(message, buffers, limit_s)
            if not self._process.await_answer(limit_s, stop=self._stop):
                raise ChannelTimeout("no answer in time")
            answer, received = self._link.receive(limit_s)
        if isinstance(answer, CandidateFailed):
            known = answer.status in FROM_WORKERS - {Status.PASSED}
            text = printable(answer.message)
            raise EntryFailed(answer.status if known else Status.CRASHED, text, self._process.output())
        if isinstance(answer, NotCaptured):
            raise InProcess(printable(answer.reason) or "its worker gave no reason")
        if not isinstance(answer, kind):
            raise EntryFailed("crashed", f"the process answered with {answer.kind}")
        return answer, received

    @contextlib.contextmanager
    def _failing(self, limit_s: float) -> Iterator[None]:
        """What goes wrong on the channel as `EntryFailed`."""
        try:
            yield
        except ChannelTimeout:
            raise EntryFailed("timeout", f"no answer within {limit_s:.0f} s", self._process.output()) from None
        except ChannelClosed:
            raise EntryFailed("crashed", self._why("the process ended"), self._process.output()) from None
        except ChannelError as error:
            raise EntryFailed("crashed", f"the process sent no valid answer: {error}") from None

    def _await_start(self) -> None:
        if self._ready:
            return
        try:
            ready, _ = self._link.receive(START_S)
        except ChannelError as error:
            raise RuntimeError(self._why(f"a worker could not start: {error}")) from None
        if not isinstance(ready, WorkerReady):
            raise RuntimeError("a worker did not say that it is ready")
        self._ready = True

    def close(self) -> None:
        """End the process."""
        self._process.kill()

    def _why(self, text: str) -> str:
        said = [line for line in printable(self._process.output()).splitlines() if line.strip()]
        where = frames("\n".join(said))
        last = [f"in {where}"] if where else said[-1:]
        return ": ".join(filter(None, [text, self._process.exit_reason(), *last]))
