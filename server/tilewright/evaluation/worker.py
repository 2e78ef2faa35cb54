"""A process that imports and runs one candidate, and nothing else.

It answers the referee's requests over a channel. It holds inputs, never seeds, references or verdicts; whatever it
says of its candidate's outputs, the referee judges by their bytes.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from cuda.tile._cext import default_tile_context

from tilewright.evaluation.candidate import Candidate, CandidateFailure, copy_outputs, give, timed
from tilewright.evaluation.ran import Ran
from tilewright.evaluation.results import Status, library_calls
from tilewright.evaluation.tensors import Argument, opened, poison, raw_bytes, spec_of, to_buffer
from tilewright.frontends.cutile.runtime import RUNTIME as cutile
from tilewright.frontends.protocol import FRONTENDS, Choice, imported_runtimes
from tilewright.interpreter.hostops import computing
from tilewright.interpreter.unshown import TF32, met
from tilewright.isolation.confinement import Isolation, confine
from tilewright.isolation.limits import apply_limits
from tilewright.task import Backend, Frontend
from tilewright.wire.channel import Channel, ChannelClosed, Message, Received

AGAIN_S = 0.25
"""For further calls, after which what an earlier one returned has to be what it was."""
SWITCH = "DISABLE_AUTOTUNE"
"""By convention, a wrapper that tunes leaves its config as it is where this variable is 1."""
OVERWRITTEN = (
    "a later call overwrites what an earlier one returned: results are the caller's, so make the output anew in each "
    "call (torch.empty_like), or return a copy of what is kept (.clone() of a graph's output)"
)
Reply = tuple[Message, list[memoryview]]


class Worker:
    """The requests a worker answers: one method for each."""

    def __init__(self, backend: Backend, arch: str) -> None:
        self._backend = backend
        self._arch = arch
        self._frontend = Frontend.CUTILE
        self._candidate: Candidate | None = None
        self._sets: list[dict[str, Any]] = []
        self._buffers: list[Received] = []
        self._kept: tuple[list[torch.Tensor], list[torch.Tensor]] | None = None
        self._forbids = False
        self._ran, self._watched = Ran(), set[str]()
        default_tile_context.config.temp_dir = tempfile.gettempdir()
        if backend is Backend.CPU:
            from tilewright.evaluation.modelling import prepare

            prepare(arch)
        else:
            torch.cuda.init()
            torch.zeros(1, device="cuda")
        cutile.watch()

    @property
    def candidate(self) -> Candidate:
        assert self._candidate is not None
        return self._candidate

    def load(self, message: Message, buffers: list[Received]) -> Reply:
        """Import the candidate from its snapshot."""
        default_tile_context.config.cache_dir = message["cache"]
        self._frontend = Frontend(message["frontend"])
        if self._backend is Backend.CPU and self._frontend is Frontend.TRITON:
            from tilewright.evaluation.modelling import prepare_triton

            prepare_triton(self._arch, message["running"])
        if message["tuner"]:
            self.choose(message, buffers)
        folder = Path(message["folder"])
        self._forbids = message["forbids"]
        with self._host():
            self._candidate = Candidate(
                folder,
                [folder / path for path in message["python_path"]],
                message["module"],
                message["function"],
                message["outputs"],
            )
        return {}, []

    def choose(self, message: Message, buffers: list[Received]) -> Reply:
        """Let tuners take what is chosen for them, from now on."""
        for runtime in imported_runtimes():
            runtime.choose(Choice(*message["tuner"]))
        if message.get("switch"):
            os.environ[SWITCH] = "1"
        return {}, []

    def inputs(self, message: Message, buffers: list[Received]) -> Reply:
        """Take the input sets of a case; they replace those of the one before, or, with `again`, are put into their
        memory (where that is this process's own) and leave its tensors what they are."""
        if message.get("again"):
            for kept, new in zip(self._buffers, buffers, strict=True):
                kept[:] = new
            plain = [item for item in map(Argument.model_validate, message["sets"][0]) if item.tensor is None]
            self._sets[0] |= {item.name: opened(item, buffers) for item in plain}
            return {}, []
        self._sets = []
        self._sets = [_opened(arguments, buffers) for arguments in message["sets"]]
        self._buffers = buffers
        return {}, []

    def call(self, message: Message, buffers: list[Received]) -> Reply:
        """Call the candidate once on input set 0. On `cpu` its outputs and the inputs' buffers come back. What it
        returned is held on to if it is to `keep`."""
        arguments = self._sets[0]
        if self._backend is Backend.CUDA:
            boxes = [opened(Argument.model_validate(box), buffers) for box in message["boxes"]]
            for box in boxes:  # what the candidate allocates next for its outputs holds no old results, but NaN
                poison(torch.empty_like(box))
            with self._forbidding(), self._watching():
                outputs = self.candidate(arguments)
                self.candidate.wait()
            self._keep(message, outputs)
            copy_outputs(outputs, boxes)
            self.candidate.wait()
            return {}, []
        with self._host(), self._forbidding(), self._watching():
            outputs = self.candidate(arguments)
        self._keep(message, outputs)
        described, views = _described(outputs)
        return {"outputs": described}, views + [memoryview(buffer) for buffer in self._buffers]

    def describe(self, message: Message, buffers: list[Received]) -> Reply:
        """What one call on input set 0 returns: shapes, strides and dtypes. Without a GPU it runs no cuTile kernel."""
        with self._host(launching=False):
            outputs = self.candidate(self._sets[0])
        if self._backend is Backend.CUDA:
            self.candidate.wait()
        return {"outputs": [spec_of(output).model_dump() for output in outputs]}, []

    def returned(self, message: Message, buffers: list[Received]) -> Reply:
        """Call the candidate some more times on input set 0. Raises `CandidateFailure` if what was kept of an earlier
        call is then not what it was."""
        outputs, contents = self._kept or ([], [])
        self._kept, end = None, time.monotonic() + AGAIN_S
        with self._host():
            for _ in range(message["times"] if outputs else 0):
                self.candidate(self._sets[0])
                if self._backend is Backend.CUDA:
                    self.candidate.wait()
                if time.monotonic() > end:
                    break
        try:
            stands = all(torch.equal(_content(one), kept) for one, kept in zip(outputs, contents, strict=True))
        except RuntimeError:  # torch.compile takes back what a graph of its own has overwritten
            stands = False
        if not stands:
            raise CandidateFailure(Status.OVERWRITTEN, OVERWRITTEN)
        return {}, []

    def _keep(self, message: Message, outputs: list[torch.Tensor]) -> None:
        """Hold on to outputs, unless they lie in the arguments' memory, which is gone after the call."""
        given = {_memory(one) for one in self._sets[0].values() if isinstance(one, torch.Tensor)}
        if message["keep"] and given.isdisjoint(map(_memory, outputs)):
            self._kept = outputs, [_content(one).clone() for one in outputs]

    def time(self, message: Message, buffers: list[Received]) -> Reply:
        """Call the candidate so many times on input set 0: the device time of each call in ms. The outputs of the last
        one are handed over."""
        boxes = [opened(Argument.model_validate(box), buffers) for box in message["boxes"]]
        ms, outputs = timed(self.candidate, self._sets[0], message["calls"], message["written"])
        copy_outputs(outputs, boxes)
        self.candidate.wait()
        return {"ms": ms}, []

    def profile(self, message: Message, buffers: list[Received]) -> Reply:
        """What the launches of one call do and occupy, for the latency model."""
        from tilewright.evaluation.modelling import profile_call

        found = profile_call(self.candidate, self._sets[0], self._arch, self._frontend)
        return {"profile": found}, []

    def check(self, message: Message, buffers: list[Received]) -> Reply:
        """What the checker finds in calls on input set 0."""
        from tilewright.evaluation.modelling import check_call

        return {"defects": check_call(self.candidate, self._sets[0], message["empty"], self._watching)}, []

    def unshown(self, message: Message, buffers: list[Received]) -> Reply:
        """What calls in this process met that it cannot show: which configs tuners took, and what a GPU does
        otherwise. And the candidate's functions that ran, or none where torch.compile hides them."""
        found = {kind: list(places) for kind, places in met.items()}
        if self._backend is Backend.CPU and torch.get_float32_matmul_precision() != "highest":
            found[TF32].append("torch's float32 products")
        tuners = [tuner for runtime in imported_runtimes() for tuner in runtime.tuners()]
        ran = None if self._hidden else self._ran.names(f"{message['root']}/")
        return {**found, "tuners": tuners, "ran": ran}, []

    def dump(self, message: Message, buffers: list[Received]) -> Reply:
        """The kernels that one call launches, compiled for each of the architectures; or, of a torch task, its
        operations."""
        from tilewright.evaluation.modelling import compiled_call, compiled_triton_call, listed_call

        if not FRONTENDS[self._frontend].has_kernels:
            return {"operations": listed_call(self.candidate, self._sets[0])}, []
        compiled = compiled_triton_call if self._frontend is Frontend.TRITON else compiled_call
        root = Path(message["root"])
        kernels = compiled(self.candidate, self._sets[0], message["archs"], root, message["compile_s"])
        return {}, [memoryview(kernel) for kernel in kernels]

    def _host(self, launching: bool = True) -> contextlib.AbstractContextManager[object]:
        """Where there is no GPU, what stands in for one while the candidate's code runs. `launching`: whether kernels
        run; otherwise their launches are only noted."""
        if self._backend is Backend.CUDA:
            return contextlib.nullcontext()
        from tilewright.interpreter.host import Mode, running

        return running(Mode.RUN if launching else Mode.CAPTURE)

    @property
    def _hidden(self) -> bool:
        """Whether torch.compile may run functions unseen."""
        return self._backend is Backend.CUDA and "torch._dynamo" in sys.modules

    def _watching(self) -> contextlib.AbstractContextManager[None]:
        """Sees which functions run in the first call on each set of shapes."""
        shapes = str([getattr(one, "shape", one) for one in self._sets[0].values()])
        if self._hidden or shapes in self._watched:
            return contextlib.nullcontext()
        self._watched.add(shapes)
        return self._ran.watching()

    @contextlib.contextmanager
    def _forbidding(self) -> Iterator[None]:
        """Raises `CandidateFailure` at the end if torch computed something within, and the task forbids that."""
        with computing() if self._forbids else contextlib.nullcontext(Counter[str]()) as calls:
            yield
        if calls:
            names = [name if times == 1 else f"{name} ({times} times)" for name, times in calls.items()]
            raise CandidateFailure(Status.LIBRARY_CALLS, library_calls(names))


def _described(outputs: list[torch.Tensor]) -> tuple[list[Message], list[memoryview]]:
    outputs = [output.contiguous() for output in outputs]
    return [spec_of(output).model_dump() for output in outputs], [to_buffer(output) for output in outputs]


def _memory(tensor: torch.Tensor) -> int:
    """Where the memory begins that a tensor is a part of."""
    return tensor.untyped_storage().data_ptr()


def _content(output: torch.Tensor) -> torch.Tensor:
    return raw_bytes(output.contiguous())


def _opened(described: list[Message], buffers: list[Received]) -> dict[str, Any]:
    return {item.name: opened(item, buffers) for item in map(Argument.model_validate, described)}


def serve(channel: Channel, worker: Worker, isolation: Isolation) -> None:
    """Answer requests until the referee closes the channel. The first message says how this process is confined."""
    channel.send({"isolation": isolation.model_dump()})
    while True:
        message, buffers = channel.receive()
        try:
            reply, views = getattr(Worker, message["op"])(worker, message, buffers)
            channel.send({"status": Status.PASSED, **reply}, views)
        except CandidateFailure as failure:
            channel.send({"status": failure.status, "message": str(failure)})
        except Exception as error:
            detail = "".join(traceback.format_exception(error)[-3:])
            channel.send({"status": Status.CRASHED, "message": f"the worker failed: {error!r}\n{detail}"})


def get_ready(backend: str) -> None:
    """Import what workers of `backend`, which is BACKEND:ARCH, need beyond this module, and open nothing."""
    if Backend(backend.partition(":")[0]) is Backend.CPU:
        from tilewright.evaluation import modelling  # noqa: F401


def main(backend: str, given: str, channel: socket.socket) -> None:
    """Confine this process, whose working directory is its scratch folder, and answer. `backend` is BACKEND:ARCH, and
    `given` the folder where candidates are put for it."""
    apply_limits()
    give(Path(given))
    isolation = confine(writable=[Path.cwd()], readable=[Path(given)])
    name, _, arch = backend.partition(":")
    with contextlib.suppress(ChannelClosed):
        serve(Channel(channel), Worker(Backend(name), arch), isolation)
