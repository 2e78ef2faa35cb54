"""Programs of an entry point's calls, as two workers describe them on different draws."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tilewright.evaluation.caches import compiler_variables
from tilewright.evaluation.results import Status
from tilewright.isolation.fork_server import ForkServer
from tilewright.isolation.process import ChildProcess, kept_environment, worker_environment
from tilewright.programs.agreement import agreed
from tilewright.programs.format import decoded
from tilewright.programs.images import missing_kernels
from tilewright.programs.model import Program, ProgramError, checked
from tilewright.text import printable
from tilewright.wire.channel import ChannelClosed, ChannelError, ChannelTimeout
from tilewright.wire.messages import (
    CallArgument,
    CandidateFailed,
    CaptureCall,
    Captured,
    Done,
    FromWorker,
    Link,
    LoadEntry,
    Message,
    NotCaptured,
    SetArguments,
    WorkerReady,
    buffer_of,
)

START_S = 120.0
_STATUSES = {status.value for status in Status} - {Status.VOID, Status.PASSED}
Reply = TypeVar("Reply", bound=Message)


@dataclass(frozen=True)
class Entry:
    """What a worker loads. `readable`: folders that it may read beside its own."""

    folder: Path
    module: str
    function: str
    frontend: str
    import_paths: tuple[Path, ...] = ()
    outputs: tuple[str, ...] = ()
    readable: tuple[Path, ...] = ()
    label: str = ""


@dataclass(frozen=True)
class Arguments:
    """One call's arguments: `tensors` are the bytes of those that `described` names as tensors, in their order."""

    described: tuple[CallArgument, ...]
    tensors: tuple[bytes, ...] = field(repr=False)


class InProcess(Exception):
    """A call that ran and cannot be replayed, and why."""


class EntryFailed(Exception):
    """The entry point failed: a status, and a message."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


def capture_server() -> ForkServer:
    """What workers are forked from: it imports torch once, which takes seconds, while the caller goes on."""
    return ForkServer.spawned("tilewright.worker.process", "", kept_environment() | {"PYTHONHASHSEED": "0"})


def capture_twice(
    server: ForkServer,
    entry: Entry,
    draws: tuple[Arguments, Arguments],
    limit_s: float,
    examples: Mapping[str, bytes] | None = None,
    constant: Collection[str] = (),
) -> Program:
    """The program of a call on either of two draws, captured in two fresh workers, if it is one program (`agreed`).

    Raises `InProcess` for what is none, `EntryFailed`, and RuntimeError where no worker can start.
    """
    with tempfile.TemporaryDirectory(prefix="tilewright-capture-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)  # of all workers: what the first compiles and tunes, the others find in its caches
        with CaptureWorker(server, entry, scratch) as one, CaptureWorker(server, entry, scratch) as other:
            first, second = _captured(one, draws[0], limit_s), _captured(other, draws[1], limit_s)

        def again() -> Program:
            with CaptureWorker(server, entry, scratch) as worker:
                return _captured(worker, draws[0], limit_s)

        try:
            found = agreed(first, second, again)
        except ProgramError as error:
            raise InProcess(f"two captures of it differ: {error}") from None
    return checked(
        Program(found.layout, found.images, found.held, examples or {}, tuple(sorted(constant)), entry.label)
    )


def _captured(worker: CaptureWorker, draw: Arguments, limit_s: float) -> Program:
    """The program that a fresh worker describes."""
    entry = worker.entry
    load = LoadEntry(
        folder=str(entry.folder),
        import_paths=[str(path) for path in entry.import_paths],
        module=entry.module,
        function=entry.function,
        outputs=list(entry.outputs),
        frontend=entry.frontend,
    )
    worker.ask(load, Done, (), limit_s)
    worker.ask(SetArguments(arguments=list(draw.described)), Done, draw.tensors, limit_s)
    found, buffers = worker.ask(CaptureCall(), Captured, (), limit_s)
    try:
        program = decoded(bytes(buffer_of(buffers, found.program)))
        if absent := missing_kernels(program):
            raise ProgramError(f"no image holds kernel {absent[0]}")
        given = [(one.name, one.tensor) for one in draw.described if one.tensor is not None]
        if [(tensor.name, tensor.spec) for tensor in program.layout.inputs] != given:
            raise ProgramError("its inputs are not the arguments")
    except (ProgramError, ChannelError) as error:
        raise InProcess(f"the worker described it wrongly: {error}") from None
    return program


class CaptureWorker:
    """A worker process that captures, from the referee's side; `scratch` is the one folder that it may write to. A
    context manager: the process ends with the block."""

    def __init__(self, server: ForkServer, entry: Entry, scratch: Path) -> None:
        """Raises RuntimeError where no worker can be had."""
        self.entry = entry
        environment = worker_environment(scratch, compiler_variables(scratch))
        folders = [str(path) for path in dict.fromkeys((entry.folder, *entry.import_paths, *entry.readable))]
        self._process = ChildProcess(lambda end: server.start(end, folders, environment, scratch), scratch)
        self._link: Link[FromWorker] = Link(self._process.channel, FromWorker)
        self._ready = False

    def __enter__(self) -> CaptureWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(
        self, message: Message, kind: type[Reply], buffers: Sequence[bytes], limit_s: float
    ) -> tuple[Reply, list[bytearray]]:
        """Raises `EntryFailed` for a candidate that fails, crashes or takes too long, `InProcess`, and RuntimeError
        where the worker cannot start."""
        self._await_start()
        try:
            self._link.send(message, buffers, limit_s)
            if not self._process.await_answer(limit_s, awake=False):
                raise ChannelTimeout("no answer in time")
            answer, received = self._link.receive(limit_s)
        except ChannelTimeout:
            raise EntryFailed("timeout", f"no answer within {limit_s:.0f} s") from None
        except ChannelClosed:
            raise EntryFailed("crashed", self._why("the process ended")) from None
        except ChannelError as error:
            raise EntryFailed("crashed", f"the process sent no valid answer: {error}") from None
        if isinstance(answer, CandidateFailed):
            known = answer.status in _STATUSES
            raise EntryFailed(answer.status if known else Status.CRASHED, printable(answer.message))
        if isinstance(answer, NotCaptured):
            raise InProcess(printable(answer.reason))
        if not isinstance(answer, kind):
            raise EntryFailed("crashed", f"the process answered with {answer.kind}")
        return answer, received

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
        said = printable(self._process.output()).strip().splitlines()[-1:]
        return ": ".join(filter(None, [text, self._process.exit_reason(), *said]))
