"""A worker imports one entry point and calls it. One kind describes a call as a device program, another one says what
an ordinary call launches and how long it takes.

It is a fork of a process that has imported this module. What it says of its candidate is a claim: the referee reads it
strictly, and another worker has to claim the same.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from tilewright.evaluation.candidate import GIVEN_PATH, Candidate, CandidateFailure, give
from tilewright.evaluation.results import Status
from tilewright.evaluation.statistics import pause_for
from tilewright.evaluation.tensors import dtype_of, from_buffer, over
from tilewright.frontends.protocol import FRONTENDS, ImageSource, MissingPackage, need_packages
from tilewright.gpu.addresses import OutOfAddresses
from tilewright.gpu.cupti import NotRecorded
from tilewright.isolation.confinement import confine
from tilewright.isolation.limits import apply_limits
from tilewright.programs.format import encoded
from tilewright.programs.model import Kernel, digest_of
from tilewright.wire.channel import Channel, ChannelClosed, ChannelError, Received
from tilewright.wire.messages import (
    CallArgument,
    CandidateFailed,
    Captured,
    Done,
    Link,
    LoadEntry,
    MakeCall,
    Message,
    NotCaptured,
    Recorded,
    SetArguments,
    ToWorker,
    WorkerReady,
    buffer_of,
)
from tilewright.wire.tensors import TensorSpec
from tilewright.worker.allocator import Arena
from tilewright.worker.capture import WARM_CALLS, capture
from tilewright.worker.graphs import nest_own_graphs
from tilewright.worker.images import Images, LoadedModules
from tilewright.worker.launches import Flush, LaunchRecorder
from tilewright.worker.nodes import NotCapturable

WARM_S = 0.1
"""Of calls before those that are timed: the GPU raises its clock."""
TIMED_CALLS, TIMED_S = 20, 2.0
"""Calls whose launches are timed, and the seconds within which they begin."""
HOST_CALLS, HOST_S = 200, 1.0
"""Calls whose time on the host is taken, and the seconds within which they begin."""
Answer = tuple[Message, list[bytes]]


class Worker:
    """The requests: one method for each. What a worker does with a call, its kind says."""

    def __init__(self) -> None:
        self._loaded: Candidate | None = None
        self._arguments: dict[str, Any] = {}

    def answer(self, message: ToWorker, buffers: Sequence[Received]) -> Answer:
        """Raises `CandidateFailure`, `NotCapturable`, `NotRecorded`, `ChannelError`."""
        match message:
            case LoadEntry():
                return self._load(message)
            case SetArguments():
                return self._set_arguments(message, buffers)
            case MakeCall():
                assert self._loaded is not None
                return self._call(self._loaded)

    def _load(self, message: LoadEntry) -> Answer:
        if self._loaded is not None:
            self._arguments.clear()
            self._loaded.forget()
            self._loaded = None
            self._begin_anew()
        try:
            need_packages(FRONTENDS[message.frontend])
        except MissingPackage as missing:
            raise CandidateFailure(Status.IMPORT_ERROR, str(missing)) from None
        self._watch()
        folder, *paths = map(Path, (message.folder, *message.import_paths))
        if message.root:
            root = Path(message.root)
            give(root.parent)
            folder, *paths = (Path(GIVEN_PATH, path.relative_to(root.parent)) for path in (folder, *paths))
        self._loaded = Candidate(folder, paths, message.module, message.function, message.outputs)
        return Done(), []

    def _set_arguments(self, message: SetArguments, buffers: Sequence[Received]) -> Answer:
        self._arguments.clear()
        self._make_room(message.zone)
        try:
            self._arguments = {one.name: _value(one, buffers) for one in message.arguments}
        except torch.OutOfMemoryError as error:
            raise NotCapturable(f"its arguments do not fit on the GPU: {error}") from None
        return Done(), []

    def _call(self, candidate: Candidate) -> Answer:
        """Do what a worker of this kind does with a call."""
        raise NotImplementedError

    def _begin_anew(self) -> None:
        """Get ready for another entry point. Raises `NotCapturable` where that cannot be."""
        raise ChannelError("this worker loads one entry point")

    def _watch(self) -> None:
        """Get ready for a candidate's import."""

    def _make_room(self, zone: int) -> None:
        """Get ready for the arguments of a case."""


class CapturingWorker(Worker):
    """Describes calls as device programs, with planned addresses."""

    def __init__(self, arena: Arena, arch: str) -> None:
        super().__init__()
        self._arena = arena
        self._arch = arch
        self._sources: list[ImageSource] = []
        self._counted: set[str] = set()
        self._modules: LoadedModules | str = "nothing is loaded"

    def _begin_anew(self) -> None:
        torch._C._cuda_clearCublasWorkspaces()
        if not self._arena.reset():
            raise NotCapturable("memory of the entry point before is still in use")

    def _watch(self) -> None:
        if self._sources:
            return
        try:
            self._modules = LoadedModules()
        except (OSError, RuntimeError) as error:
            self._modules = str(error)
        for frontend in FRONTENDS:  # a candidate may mix them
            with contextlib.suppress(MissingPackage):
                self._sources.append(frontend.runtime().watch_images())

    def _make_room(self, zone: int) -> None:
        self._arena.exhausted = ""
        try:
            self._arena.start_zone(zone)
        except OutOfAddresses as error:
            raise ChannelError(str(error)) from None

    def _set_arguments(self, message: SetArguments, buffers: Sequence[Received]) -> Answer:
        answer = super()._set_arguments(message, buffers)
        if why := self._arena.exhausted:
            raise NotCapturable(f"its arguments do not fit on the GPU: {why}")
        return answer

    def _call(self, candidate: Candidate) -> Answer:
        inputs = {name: value for name, value in self._arguments.items() if isinstance(value, torch.Tensor)}
        self._arena.reset_peak()
        before = self._arena.alive_bytes

        def call() -> list[torch.Tensor]:
            try:
                outputs = candidate(self._arguments)
                if not torch.cuda.is_current_stream_capturing():
                    candidate.wait()
            except CandidateFailure as failure:
                self._blame_memory()
                if "CUDAPluggableAllocator" in str(failure):
                    raise NotCapturable(f"it asks torch's allocator for what only torch's own has: {failure}") from None
                raise
            self._blame_memory()
            return outputs

        images = Images(self._sources, self._modules)
        program = capture(call, inputs, self._arena, images, self._arch)
        peak = max(self._arena.peak_bytes - before, 0)
        loaded = {digest_of(image) for source in self._sources for image in source.images()}
        spare, self._counted = len(loaded - self._counted - program.images.keys()), loaded
        symbols = {node.symbol for node in program.layout.nodes if isinstance(node, Kernel)}
        libraries = [symbol for symbol in images.libraries if symbol in symbols]  # other captures may have had more
        told = Captured(program=0, peak_bytes=peak, spare_images=spare, libraries=libraries)
        return told, [encoded(program)]

    def _blame_memory(self) -> None:
        if why := self._arena.exhausted:
            raise CandidateFailure(Status.RAISED, f"out of GPU memory: {why}")


class OrdinaryWorker(Worker):
    """Calls as a user's process does, with torch's own allocator, and says what a call launches and how long that
    takes."""

    def __init__(self, recorder: LaunchRecorder | NotRecorded) -> None:
        super().__init__()
        self._recorder = recorder
        self._flush: Flush | None = None

    def _call(self, candidate: Candidate) -> Answer:
        recorder = self._recorder
        if isinstance(recorder, NotRecorded):
            raise recorder

        def call() -> float:
            began = time.perf_counter()
            candidate(self._arguments)
            took = time.perf_counter() - began
            candidate.wait()
            return 1e6 * took

        def timed() -> float:
            flush()
            time.sleep(rest_s)
            return math.fsum((one.end - one.start) / 1e3 for one in recorder.record(call))

        for _ in range(WARM_CALLS):
            call()
        launches = [one.launch for one in recorder.record(call)]
        flush = self._flush = self._flush or Flush()
        warm = _again(call, 10**6, WARM_S)
        rest_s = pause_for(1e6 * WARM_S / len(warm))  # as where they are replayed
        us = _again(timed, TIMED_CALLS, TIMED_S)
        return Recorded(launches=launches, us=us, host_us=_again(call, HOST_CALLS, HOST_S)), []


def _again(call: Callable[[], float], most: int, limit_s: float) -> list[float]:
    """What up to `most` calls give that begin within `limit_s` seconds, one at least."""
    found, until = [call()], time.monotonic() + limit_s
    while len(found) < most and time.monotonic() < until:
        found.append(call())
    return found


def _value(argument: CallArgument, buffers: Sequence[Received]) -> Any:
    if argument.tensor is None:
        return argument.said
    return _on_gpu(from_buffer(argument.tensor, buffer_of(buffers, argument.data)), argument.tensor)


def _on_gpu(tensor: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """The tensor on the GPU, with its strides, in a block of its own."""
    if not spec.span:
        return torch.empty(spec.shape, dtype=dtype_of(spec), device="cuda")
    flat = torch.as_strided(tensor, (spec.span,), (1,)).view(torch.uint8)
    return over(spec, flat.cuda())


def serve(link: Link[ToWorker], worker: Worker) -> None:
    """Answer until the referee closes the channel."""
    while True:
        message, buffers = link.receive()
        try:
            answer, out = worker.answer(message, buffers)
        except CandidateFailure as failure:
            answer, out = CandidateFailed(status=failure.status, message=str(failure)[:4000]), []
        except NotCapturable as error:
            answer, out = NotCaptured(reason=str(error)[:1000]), []
        except NotRecorded as error:
            answer, out = NotCaptured(reason=f"what an ordinary call launches is not known: {error}"[:1000]), []
        link.send(answer, out)


def get_ready(backend: str) -> None:
    """torch takes seconds to be imported, and is. A language is imported by each worker: it reads its environment."""


def main(*arguments: Any) -> None:
    """Confine this process, whose working directory is its scratch folder, and answer. `arguments`: "capture" or
    "ordinary", folders that it may read, and its end of the channel."""
    kind, *folders, channel = arguments
    apply_limits()
    give(Path.cwd())  # before CUDA opens files: nobody else is to have this descriptor
    confine(writable=[Path.cwd()], readable=[Path(folder) for folder in folders])
    worker = _capturing() if kind == "capture" else _ordinary()
    link: Link[ToWorker] = Link(Channel(channel, takes_memory=True), ToWorker)
    link.send(WorkerReady())
    with contextlib.suppress(ChannelClosed):
        serve(link, worker)


def _capturing() -> Worker:
    """A worker that captures, with its own allocator in place of torch's."""
    arena = Arena()
    arena.install()
    nest_own_graphs(arena)
    torch.cuda.init()
    major, minor = torch.cuda.get_device_capability()
    return CapturingWorker(arena, f"sm_{major}{minor}")


def _ordinary() -> Worker:
    try:
        recorder: LaunchRecorder | NotRecorded = LaunchRecorder()
    except NotRecorded as error:
        recorder = error
    return OrdinaryWorker(recorder)
