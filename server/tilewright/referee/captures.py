"""Programs of an entry point's calls, as two workers describe them on different draws; and whether an ordinary call
launches what a program does."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from tilewright.errors import UsageError
from tilewright.evaluation.caches import COMPILED, copy_cache, forget_choices
from tilewright.gpu.addresses import ZONES
from tilewright.isolation.fork_server import ForkServer
from tilewright.programs.agreement import agreed
from tilewright.programs.format import decoded
from tilewright.programs.identity import differences
from tilewright.programs.images import missing_kernels
from tilewright.programs.launches import launch_differences
from tilewright.programs.model import Program, ProgramError, checked
from tilewright.referee.capture_worker import CaptureWorker, Entry, EntryFailed, InProcess
from tilewright.text import printable
from tilewright.wire.channel import ChannelError, Sent
from tilewright.wire.messages import (
    CallArgument,
    Captured,
    Done,
    MakeCall,
    Recorded,
    SetArguments,
    buffer_of,
)
from tilewright.wire.tensors import TensorSpec

_NO_ROOM = ("out of GPU memory", "do not fit on the GPU")
"""What a worker says whose call, or whose arguments, take more memory than there is."""


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
        elif value is None or isinstance(value, int | float | str | bool):
            described.append(CallArgument.plain(name, value))
        else:
            kind = type(value).__name__
            raise UsageError(f"argument {name} is a {kind}; it must be a tensor, a number, a string, a bool or None")
    return Arguments(tuple(described), tuple(tensors))


class OtherLaunches(Exception):
    """An ordinary call launches other things than the program: where they differ."""


@dataclass(frozen=True)
class CallCaptured:
    """A call that ran."""

    programs: tuple[Program, ...] = ()
    """What it launches: several programs where it tunes, and fresh processes chose otherwise."""
    reason: str = ""
    """Why it has no program."""
    peak_bytes: int = 0
    """Most bytes of the GPU's memory that it took beyond its arguments."""
    tuned: bool = False
    """Whether it may have tuned, since more kernels were loaded for it than its program launches."""
    libraries: tuple[str, ...] = ()
    """The kernels of its programs that are a library's, by their symbols."""
    note: str = ""
    """What a reader of the row should know of it."""

    @property
    def fixed(self) -> bool:
        """Whether it is a program that no tuner chose."""
        return len(self.programs) == 1 and not self.tuned

    def joined(self, other: CallCaptured) -> CallCaptured:
        """The same call with the programs of further captures, which may show that it cannot be replayed."""
        if not (self.programs and other.programs):
            return other if self.programs else self
        programs = [*self.programs]
        for one in other.programs:
            for place, known in enumerate(programs):
                if (program := agreed(known, one)) is not None:
                    programs[place] = program
                    break
            else:
                programs.append(one)
        return CallCaptured(
            tuple(programs),
            peak_bytes=max(self.peak_bytes, other.peak_bytes),
            tuned=self.tuned or other.tuned,
            libraries=tuple(dict.fromkeys((*self.libraries, *other.libraries))),
            note=self.note,
        )


def capture_calls(
    server: ForkServer,
    entry: Entry,
    calls: Sequence[tuple[Arguments, Arguments]],
    limit_s: float,
    cache: Path | None = None,
    stop: Event | None = None,
) -> list[CallCaptured]:
    """For each call, described by two draws of its arguments, what two fresh workers launch: one program if they agree
    (`agreed`), else both.

    `cache`: a folder of what compilers made of this candidate before, and make now. `limit_s`: for an import, or for
    the calls of one capture. Raises `EntryFailed`, and RuntimeError where no worker can start. With `stop`, which gives
    it up, other work goes on beside it: then a call that is not `fixed` counts for nothing, and raises `InProcess`.
    """
    found: list[CallCaptured] = []
    with tempfile.TemporaryDirectory(prefix="tilewright-capture-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)  # of all workers: what the first compiles, the others find in its caches
        if cache is not None:
            copy_cache(cache, scratch / COMPILED)
        with _Pair(server, entry, scratch, limit_s, stop) as pair:
            for number, draws in enumerate(calls):
                try:
                    found.append(pair.capture(draws, 1 + number % (ZONES - 1)))
                except InProcess as error:
                    found.append(CallCaptured(reason=str(error)))
                if stop is not None and not found[-1].fixed:
                    raise InProcess(found[-1].reason or "it may have tuned while other work went on")
        if cache is not None:
            copy_cache(scratch / COMPILED, cache)
    return found


class _Pair:
    """Two workers that capture the same calls; new ones after a call that is no program, whose processes may be in any
    state, and where their zones are used up. They get ready side by side. They call one after the other, or, beside a
    check, at once."""

    def __init__(
        self, server: ForkServer, entry: Entry, scratch: Path, limit_s: float, stop: Event | None = None
    ) -> None:
        self._stop = stop
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
            return _of_both(*self._captured(draws, zone))
        except (EntryFailed, InProcess) as failure:
            if not any(words in str(failure) for words in _NO_ROOM):
                raise
        try:
            return _of_both(*(self._alone(draw, zone) for draw in draws))
        except EntryFailed as failure:
            if not any(words in str(failure) for words in _NO_ROOM):
                raise
            raise InProcess(f"at addresses of its own it does not fit on the GPU: {failure}") from None

    def _start(self) -> CaptureWorker:
        return CaptureWorker(self._server, self._entry, self._scratch, stop=self._stop)

    def _alone(self, draw: Arguments, zone: int) -> _Capture:
        """What a worker captures that does nothing else, and ends."""
        with self._start() as worker:
            set_arguments(worker, draw, zone, self._limit_s)
            return self._called(worker, draw)

    def _called(self, worker: CaptureWorker, draw: Arguments) -> _Capture:
        forget_choices(self._scratch / COMPILED)
        return captured_call(worker, draw, self._limit_s)

    def _captured(self, draws: tuple[Arguments, Arguments], zone: int) -> tuple[_Capture, _Capture]:
        if not self._workers or zone <= self._zone:
            self._close()
            for _ in draws:
                self._workers.append(self._start())
        self._zone = zone
        one, other = self._workers

        def prepared_and_called() -> _Capture:
            set_arguments(other, draws[1], zone, self._limit_s)
            return self._called(other, draws[1])

        try:
            with ThreadPoolExecutor(1) as thread:
                if self._stop is not None:  # nothing that tunes counts beside a check
                    calling = thread.submit(prepared_and_called)
                    set_arguments(one, draws[0], zone, self._limit_s)
                    return self._called(one, draws[0]), calling.result()
                preparing = thread.submit(set_arguments, other, draws[1], zone, self._limit_s)
                set_arguments(one, draws[0], zone, self._limit_s)
                preparing.result()
                first = self._called(one, draws[0])  # it may tune: nothing else goes on
                return first, self._called(other, draws[1])
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        while self._workers:
            self._workers.pop().close()


_Capture = tuple[Program, Captured]


def _of_both(one: _Capture, other: _Capture) -> CallCaptured:
    (first, told), (second, also) = one, other
    program = agreed(first, second)
    return CallCaptured(
        (program,) if program is not None else (first, second),
        peak_bytes=max(told.peak_bytes, also.peak_bytes),
        tuned=max(told.spare_images, also.spare_images) > 0,
        libraries=tuple(map(printable, dict.fromkeys((*told.libraries, *also.libraries)))),
    )


def capture_twice(
    server: ForkServer,
    entry: Entry,
    draws: tuple[Arguments, Arguments],
    limit_s: float,
    examples: Mapping[str, bytes] | None = None,
    constant: Collection[str] = (),
) -> Program:
    """The program of one call, see `capture_calls`, with `examples` of its inputs. Raises `InProcess` too. Where the
    two workers differ, the first may have compiled what the other found, and it is captured once more."""
    with tempfile.TemporaryDirectory(prefix="tilewright-compiled-", ignore_cleanup_errors=True) as folder:
        for _ in range(2):
            (found,) = capture_calls(server, entry, [draws], limit_s, Path(folder))
            if len(found.programs) < 2:
                break
    if not found.programs:
        raise InProcess(found.reason)
    program, *others = found.programs
    if others:
        raise InProcess(f"two captures of it differ: {'; '.join(differences(program, others[0], most=3))}")
    kept = tuple(sorted(constant))
    return checked(Program(program.layout, program.images, program.held, examples or {}, kept, entry.label))


def set_arguments(worker: CaptureWorker, draw: Arguments, zone: int, limit_s: float) -> None:
    """Have a worker take arguments, once it has imported its entry point. Raises as `CaptureWorker.ask` does."""
    worker.load(limit_s)
    worker.ask(SetArguments(zone=zone, arguments=list(draw.described)), Done, draw.tensors, limit_s)


def captured_call(worker: CaptureWorker, draw: Arguments, limit_s: float) -> tuple[Program, Captured]:
    """The program that a worker describes, and what else it says of the call. Raises as `CaptureWorker.ask` does."""
    found, buffers = worker.ask(MakeCall(), Captured, (), limit_s)
    try:
        program = decoded(bytes(buffer_of(buffers, found.program)))
        if absent := missing_kernels(program):
            raise ProgramError(f"no image holds kernel {absent[0]}")
        given = [(one.name, one.tensor) for one in draw.described if one.tensor is not None]
        if [(tensor.name, tensor.spec) for tensor in program.layout.inputs] != given:
            raise ProgramError("its inputs are not the arguments")
    except (ProgramError, ChannelError) as error:
        raise InProcess(f"the worker described it wrongly: {error}") from None
    return program, found


class OrdinaryCalls:
    """A fresh process that calls an entry point, and captures nothing, with torch's own allocator and without what was
    compiled or tuned before. A context manager: the process ends with the block."""

    def __init__(self, server: ForkServer, entry: Entry, draws: Sequence[Arguments], limit_s: float) -> None:
        """`limit_s`: for an import, or for the calls on one of the draws. Raises RuntimeError where no worker can
        start."""
        self._draws = draws
        self._limit_s = limit_s
        with contextlib.ExitStack() as stack:
            made = tempfile.TemporaryDirectory(prefix="tilewright-ordinary-", ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(made))
            self._worker = stack.enter_context(CaptureWorker(server, entry, folder, "ordinary"))
            self._stack = stack.pop_all()

    def __enter__(self) -> OrdinaryCalls:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def make(self) -> list[Recorded]:
        """What each call launches and how long it takes. The second time, all is compiled. Raises `EntryFailed`,
        `InProcess` where the launches cannot be recorded, and RuntimeError where the worker could not start."""
        recorded = []
        for draw in self._draws:
            set_arguments(self._worker, draw, 1, self._limit_s)
            recorded.append(self._worker.ask(MakeCall(), Recorded, (), self._limit_s)[0])
        return recorded

    def close(self) -> None:
        """End the process."""
        self._stack.close()


def confirm_launches(recorded: Sequence[Recorded], programs: Sequence[Sequence[Program]]) -> list[list[Program]]:
    """Of each call's programs, those that launch what the ordinary call did. Raises `OtherLaunches` where none does,
    and `InProcess` where that cannot be told."""
    confirmed = []
    for call, each in zip(recorded, programs, strict=True):
        try:
            found = [launch_differences(program, call.launches) for program in each]
        except ProgramError as error:
            raise InProcess(str(error)) from None
        confirmed.append([program for program, differences in zip(each, found, strict=True) if not differences])
        if not confirmed[-1]:
            least = min(found, key=lambda differences: len(differences))
            why = printable("; ".join(least))
            raise OtherLaunches(f"launches other kernels outside capture; write the tuned config down: {why}")
    return confirmed
