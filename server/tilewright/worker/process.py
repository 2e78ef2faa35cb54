"""A worker that captures: it imports one entry point, calls it, and describes a call as a device program.

It is a fork of a process that has imported this module. What it says of its candidate is a claim: the referee reads it
strictly, and another worker has to claim the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tilewright.evaluation.candidate import Candidate, CandidateFailure
from tilewright.evaluation.results import Status
from tilewright.evaluation.tensors import TensorSpec, from_buffer
from tilewright.frontends.protocol import FRONTENDS, ImageSource, MissingPackage, need_packages
from tilewright.gpu.addresses import OutOfAddresses
from tilewright.isolation.confinement import confine
from tilewright.isolation.limits import apply_limits
from tilewright.programs.format import encoded
from tilewright.wire.channel import Channel, ChannelClosed, ChannelError
from tilewright.wire.messages import (
    CallArgument,
    CandidateFailed,
    CaptureCall,
    Captured,
    Done,
    Link,
    LoadEntry,
    Message,
    NotCaptured,
    SetArguments,
    ToWorker,
    WorkerReady,
    buffer_of,
)
from tilewright.worker.allocator import Arena
from tilewright.worker.capture import capture
from tilewright.worker.graphs import nest_own_graphs
from tilewright.worker.images import Images, LoadedModules
from tilewright.worker.nodes import NotCapturable

Answer = tuple[Message, list[bytes]]


class Worker:
    """The requests: one method for each."""

    def __init__(self, arena: Arena, arch: str) -> None:
        self._arena = arena
        self._arch = arch
        self._candidate: Candidate | None = None
        self._sources: list[ImageSource] = []
        self._modules: LoadedModules | str = "nothing is loaded"
        self._arguments: dict[str, Any] = {}

    def answer(self, message: ToWorker, buffers: Sequence[bytearray]) -> Answer:
        """Raises `CandidateFailure`, `NotCapturable`, `ChannelError`."""
        match message:
            case LoadEntry():
                return self._load(message)
            case SetArguments():
                return self._set_arguments(message, buffers)
            case CaptureCall():
                return self._capture()

    def _load(self, message: LoadEntry) -> Answer:
        if self._candidate is not None:
            raise ChannelError("a worker loads one entry point")
        try:
            self._modules = LoadedModules()
        except (OSError, RuntimeError) as error:
            self._modules = str(error)
        try:
            need_packages(FRONTENDS[message.frontend])
        except MissingPackage as missing:
            raise CandidateFailure(Status.IMPORT_ERROR, str(missing)) from None
        for frontend in FRONTENDS:  # a candidate may mix them
            with contextlib.suppress(MissingPackage):
                self._sources.append(frontend.runtime().watch_images())
        paths = [Path(path) for path in message.import_paths]
        self._candidate = Candidate(Path(message.folder), paths, message.module, message.function, message.outputs)
        return Done(), []

    def _set_arguments(self, message: SetArguments, buffers: Sequence[bytearray]) -> Answer:
        self._arguments.clear()
        self._arena.exhausted = ""
        try:
            self._arena.start_zone(message.zone)
        except OutOfAddresses as error:
            raise ChannelError(str(error)) from None
        self._arguments = {one.name: _value(one, buffers) for one in message.arguments}
        if why := self._arena.exhausted:
            raise NotCapturable(f"its arguments do not fit on the GPU: {why}")
        return Done(), []

    def _capture(self) -> Answer:
        candidate = self._candidate
        if candidate is None:
            raise ChannelError("nothing is loaded")
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
        return Captured(program=0, peak_bytes=peak), [encoded(program)]

    def _blame_memory(self) -> None:
        if why := self._arena.exhausted:
            raise CandidateFailure(Status.RAISED, f"out of GPU memory: {why}")


def _value(argument: CallArgument, buffers: Sequence[bytearray]) -> Any:
    if argument.special:
        return float(argument.special)
    if argument.tensor is None:
        return argument.value
    spec = TensorSpec(**argument.tensor.model_dump())
    return _on_gpu(from_buffer(spec, buffer_of(buffers, argument.data)), spec)


def _on_gpu(tensor: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """The tensor on the GPU, with its strides, in a block of its own."""
    if not spec.span:
        return torch.empty(spec.shape, dtype=spec.torch_dtype, device="cuda")
    flat = torch.as_strided(tensor, (spec.span,), (1,)).view(torch.uint8)
    return spec.over(flat.cuda())


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
        link.send(answer, out)


def get_ready(backend: str) -> None:
    """torch takes seconds to be imported, and is. A language is imported by each worker: it reads its environment."""


def main(*arguments: Any) -> None:
    """Confine this process, whose working directory is its scratch folder, replace torch's allocator in it, and answer.
    `arguments`: folders that it may read, and its end of the channel."""
    *folders, channel = arguments
    apply_limits()
    isolation = confine(writable=[Path.cwd()], readable=[Path(folder) for folder in folders])
    arena = Arena()
    arena.install()
    nest_own_graphs(arena)
    torch.cuda.init()
    major, minor = torch.cuda.get_device_capability()
    arch = f"sm_{major}{minor}"
    link: Link[ToWorker] = Link(Channel(channel), ToWorker)
    link.send(WorkerReady(arch=arch, isolation=isolation.model_dump()))
    with contextlib.suppress(ChannelClosed):
        serve(link, Worker(arena, arch))
