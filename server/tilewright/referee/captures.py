"""Programs of an entry point's calls, as two workers describe them on different draws; and whether an ordinary call
launches what a program does."""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from tilewright.errors import UsageError
from tilewright.evaluation.caches import COMPILED, compiler_variables, copy_cache
from tilewright.evaluation.results import OURS, Status
from tilewright.gpu.addresses import ZONES
from tilewright.isolation.fork_server import ForkServer
from tilewright.isolation.process import ChildProcess, kept_environment, worker_environment
from tilewright.programs.agreement import agreed
from tilewright.programs.format import decoded
from tilewright.programs.images import missing_kernels
from tilewright.programs.launches import launch_differences
from tilewright.programs.model import Program, ProgramError, checked
from tilewright.text import printable
from tilewright.wire.channel import ChannelClosed, ChannelError, ChannelTimeout, Received, Sent
from tilewright.wire.launches import Launch
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
    RecordCall,
    Recorded,
    SetArguments,
    WorkerReady,
    buffer_of,
)
from tilewright.wire.tensors import TensorSpec

START_S = 120.0
_NO_ROOM = ("out of GPU memory", "do not fit on the GPU")
"""What a worker says whose call, or whose arguments, take more memory than there is."""
_STATUSES = {status.value for status in Status} - OURS - {Status.PASSED}
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
    tensors: tuple[Sent, ...] = field(repr=False)


def arguments_of(values: Mapping[str, Any], content: Callable[[str, Any], tuple[Sent, TensorSpec]]) -> Arguments:
    """A call's arguments by name; `content` gives a tensor's bytes and what they mean. Raises `UsageError`."""
    described: list[CallArgument] = []
    tensors: list[Sent] = []
    for name, value in values.items():
        if hasattr(value, "data_ptr"):
            data, spec = content(name, value)
            described.append(CallArgument(name=name, tensor=spec, data=len(tensors)))
            tensors.append(data)
        elif isinstance(value, float) and not math.isfinite(value):
            special = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
            described.append(CallArgument.model_validate({"name": name, "special": special}))
        elif value is None or isinstance(value, int | float | str | bool):
            described.append(CallArgument(name=name, value=value))
        else:
            kind = type(value).__name__
            raise UsageError(f"argument {name} is a {kind}; it must be a tensor, a number, a string, a bool or None")
    return Arguments(tuple(described), tuple(tensors))


class InProcess(Exception):
    """A call that ran and cannot be replayed, and why. `arm`: of two programs, the one that cannot be."""

    def __init__(self, reason: str, arm: int | None = None) -> None:
        super().__init__(reason)
        self.arm = arm


class OtherLaunches(Exception):
    """An ordinary call launches other things than the program: where they differ."""


class EntryFailed(Exception):
    """The entry point failed: a status, a message, and what its process printed last."""

    def __init__(self, status: str, message: str, output: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.output = output


def capture_server() -> ForkServer:
    """What workers are forked from: it imports torch once, which takes seconds, while the caller goes on."""
    return ForkServer.spawned("tilewright.worker.process", "", kept_environment() | {"PYTHONHASHSEED": "0"})


@dataclass(frozen=True)
class CallCaptured:
    """A call that ran: its program, or why it is none; and the most bytes of the GPU's memory that it took beyond its
    arguments."""

    program: Program | None
    reason: str = ""
    peak_bytes: int = 0


def capture_calls(
    server: ForkServer,
    entry: Entry,
    calls: Sequence[tuple[Arguments, Arguments]],
    limit_s: float,
    cache: Path | None = None,
) -> list[CallCaptured]:
    """For each call, described by two draws of its arguments, the program that two fresh workers agree on (`agreed`).

    `cache`: a folder of what compilers made of this candidate before, and make now. `limit_s`: for an import, or for
    the calls of one capture. Raises `EntryFailed`, and RuntimeError where no worker can start.
    """
    found: list[CallCaptured] = []
    with tempfile.TemporaryDirectory(prefix="tilewright-capture-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)  # of all workers: what the first compiles and tunes, the others find in its caches
        if cache is not None:
            copy_cache(cache, scratch / COMPILED)
        with _Pair(server, entry, scratch, limit_s) as pair:
            for number, draws in enumerate(calls):
                try:
                    found.append(pair.capture(draws, 1 + number % (ZONES - 1)))
                except InProcess as error:
                    found.append(CallCaptured(None, str(error)))
        if cache is not None:
            copy_cache(scratch / COMPILED, cache)
    return found


class _Pair:
    """Two workers that capture the same calls; new ones after a call that is no program, whose processes may be in any
    state, and where their zones are used up. They start side by side, and call one after the other."""

    def __init__(self, server: ForkServer, entry: Entry, scratch: Path, limit_s: float) -> None:
        self._server = server
        self._entry = entry
        self._scratch = scratch
        self._limit_s = limit_s
        self._workers: list[CaptureWorker] = []
        self._zone = 0

    def __enter__(self) -> _Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def capture(self, draws: tuple[Arguments, Arguments], zone: int) -> CallCaptured:
        """One worker at a time, if both do not fit on the GPU. Raises `InProcess`, `EntryFailed`, RuntimeError."""
        try:
            return self._capture(draws, zone)
        except (EntryFailed, InProcess) as failure:
            if not any(words in str(failure) for words in _NO_ROOM):
                raise
        try:
            (first, peak), (second, _) = (self._alone(draw, zone) for draw in draws)
        except EntryFailed as failure:
            if not any(words in str(failure) for words in _NO_ROOM):
                raise
            raise InProcess(f"at addresses of its own it does not fit on the GPU: {failure}") from None
        return self._agreed(draws, zone, first, second, peak)

    def _alone(self, draw: Arguments, zone: int) -> tuple[Program, int]:
        with CaptureWorker(self._server, self._entry, self._scratch) as worker:
            return _captured(worker, draw, zone, self._limit_s)

    def _agreed(
        self, draws: tuple[Arguments, Arguments], zone: int, first: Program, second: Program, peak: int
    ) -> CallCaptured:
        try:
            program = agreed(first, second, lambda which: self._alone(draws[which], zone)[0])
        except ProgramError as error:
            raise InProcess(f"two captures of it differ: {error}") from None
        return CallCaptured(program, peak_bytes=peak)

    def _capture(self, draws: tuple[Arguments, Arguments], zone: int) -> CallCaptured:
        if not self._workers or zone <= self._zone:
            self._close()
            for _ in draws:
                self._workers.append(CaptureWorker(self._server, self._entry, self._scratch))
            for worker in self._workers:  # side by side
                worker.begin_to_load(self._limit_s)
        self._zone = zone
        try:
            (first, peak), (second, _) = (
                _captured(worker, draw, zone, self._limit_s) for worker, draw in zip(self._workers, draws, strict=True)
            )
            return self._agreed(draws, zone, first, second, peak)
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        while self._workers:
            self._workers.pop().close()


def capture_twice(
    server: ForkServer,
    entry: Entry,
    draws: tuple[Arguments, Arguments],
    limit_s: float,
    examples: Mapping[str, bytes] | None = None,
    constant: Collection[str] = (),
) -> Program:
    """The program of one call, see `capture_calls`, with `examples` of its inputs. Raises `InProcess` too."""
    (found,) = capture_calls(server, entry, [draws], limit_s)
    if found.program is None:
        raise InProcess(found.reason)
    program = found.program
    kept = tuple(sorted(constant))
    return checked(Program(program.layout, program.images, program.held, examples or {}, kept, entry.label))


def _captured(worker: CaptureWorker, draw: Arguments, zone: int, limit_s: float) -> tuple[Program, int]:
    """The program that a worker describes, and the peak of its memory."""
    worker.load(limit_s)
    worker.ask(SetArguments(zone=zone, arguments=list(draw.described)), Done, draw.tensors, limit_s)
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
    return program, found.peak_bytes


def ordinary_calls(server: ForkServer, entry: Entry, draws: Sequence[Arguments], limit_s: float) -> list[list[Launch]]:
    """What each call launches, one after the other in a fresh process that captures nothing, with torch's own allocator
    and without what was compiled or tuned before. `limit_s`: for an import, or for one of the calls.

    Raises `EntryFailed`, `InProcess` where the launches cannot be recorded, and RuntimeError where no worker can start.
    """
    with (
        tempfile.TemporaryDirectory(prefix="tilewright-ordinary-", ignore_cleanup_errors=True) as folder,
        CaptureWorker(server, entry, Path(folder), "ordinary") as worker,
    ):
        worker.load(limit_s)
        recorded = []
        for draw in draws:
            worker.ask(SetArguments(zone=1, arguments=list(draw.described)), Done, draw.tensors, limit_s)
            recorded.append(worker.ask(RecordCall(), Recorded, (), limit_s)[0].launches)
    return recorded


def confirm_launches(
    server: ForkServer, entry: Entry, draws: Sequence[Arguments], programs: Sequence[Program], limit_s: float
) -> None:
    """Raises `OtherLaunches` where an ordinary call launches other things than its program, and as `ordinary_calls`
    does."""
    for recorded, program in zip(ordinary_calls(server, entry, draws, limit_s), programs, strict=True):
        try:
            found = launch_differences(program, recorded)
        except ProgramError as error:
            raise InProcess(str(error)) from None
        if found:
            why = printable("; ".join(found))
            raise OtherLaunches(f"launches other kernels outside capture; write the tuned config down: {why}")


class CaptureWorker:
    """A worker process, from the referee's side; `scratch` is the one folder that it may write to. One of the kind
    "capture" makes programs, one of the kind "ordinary" records launches. A context manager: the process ends with the
    block."""

    def __init__(
        self, server: ForkServer, entry: Entry, scratch: Path, kind: Literal["capture", "ordinary"] = "capture"
    ) -> None:
        """Raises RuntimeError where no worker can be had."""
        self._entry = entry
        self._loading = self._loaded = False
        environment = worker_environment(scratch, compiler_variables(scratch))
        folders = [str(path) for path in dict.fromkeys((entry.folder, *entry.import_paths, *entry.readable))]
        self._process = ChildProcess(lambda end: server.start(end, [kind, *folders], environment, scratch), scratch)
        self._link: Link[FromWorker] = Link(self._process.channel, FromWorker)
        self._ready = False

    def __enter__(self) -> CaptureWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin_to_load(self, limit_s: float) -> None:
        """Have it begin to import the entry point, unless it has. Raises as `ask` does."""
        if self._loading:
            return
        self._loading = True
        entry = self._entry
        message = LoadEntry(
            folder=str(entry.folder),
            import_paths=[str(path) for path in entry.import_paths],
            module=entry.module,
            function=entry.function,
            outputs=list(entry.outputs),
            frontend=entry.frontend,
        )
        self._send(message, (), limit_s)

    def load(self, limit_s: float) -> None:
        """Have it import the entry point, unless it has. Raises as `ask` does."""
        self.begin_to_load(limit_s)
        if not self._loaded:
            self._answer(Done, limit_s)
            self._loaded = True

    def ask(
        self, message: Message, kind: type[Reply], buffers: Sequence[Sent], limit_s: float
    ) -> tuple[Reply, list[Received]]:
        """Raises `EntryFailed` for a candidate that fails, crashes or takes too long, `InProcess`, and RuntimeError
        where the worker cannot start."""
        self._send(message, buffers, limit_s)
        return self._answer(kind, limit_s)

    def _send(self, message: Message, buffers: Sequence[Sent], limit_s: float) -> None:
        self._await_start()
        with self._failing(limit_s):
            self._link.send(message, buffers, limit_s)

    def _answer(self, kind: type[Reply], limit_s: float) -> tuple[Reply, list[Received]]:
        with self._failing(limit_s):
            if not self._process.await_answer(limit_s, awake=False):
                raise ChannelTimeout("no answer in time")
            answer, received = self._link.receive(limit_s)
        if isinstance(answer, CandidateFailed):
            known = answer.status in _STATUSES
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
        last = [line for line in said if not line.startswith("Extension modules:")][-1:]  # ends each trace of a crash
        return ": ".join(filter(None, [text, self._process.exit_reason(), *last]))
