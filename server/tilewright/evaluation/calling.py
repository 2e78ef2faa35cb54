"""How the referee calls a candidate on a worker: arguments between red zones, poisoned boxes for what comes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from tilewright.evaluation.pool import WorkerFailure, WorkerHandle
from tilewright.evaluation.results import Status
from tilewright.evaluation.taskcode import Inputs, TaskCode
from tilewright.evaluation.tensors import (
    GUARD,
    Argument,
    SharedTensor,
    from_buffer,
    guarded,
    poison,
    spec_of,
    to_buffer,
    trespass,
)
from tilewright.task import Backend, Task
from tilewright.wire.tensors import TensorSpec

MORE_CALLS, MANY_CALLS = 40, 4000
"""Made at most, before what the first one on a shape returned is looked at once more: on a hidden shape, and on one of
the task's own."""


@dataclass(frozen=True)
class Given:
    """What a call is given beside its arguments: the inputs among them as they were, the empty tensors that its outputs
    must be like, whether tensors lie at odd addresses, and inputs that it is called on first, in the same memory;
    whether the worker is to `keep` what it returns; and, if not 0, after how many more calls what was kept has to be
    the same."""

    inputs: Inputs
    contract: list[torch.Tensor]
    odd: bool = False
    before: Inputs | None = None
    keep: bool = False
    times: int = 0

    def zones(self, tensor: torch.Tensor) -> tuple[int, int]:
        """Bytes of red zone before and after a tensor."""
        return GUARD + (tensor.element_size() if self.odd else 0), GUARD


@dataclass(frozen=True)
class Done:
    """A call's outputs, its tensor arguments afterwards, and where it wrote beside them, by name."""

    outputs: list[torch.Tensor]
    after: Inputs
    trespasses: dict[str, str]


Call = Callable[[Inputs, Given], Done]


def calls_of(worker: WorkerHandle, code: TaskCode, backend: Backend) -> Call:
    """How the candidate on a worker is called."""
    call = _run_on_device if backend is Backend.CUDA else _run_in_frames
    return lambda arguments, given: call(worker, code.task, arguments, given)


def cpu_arguments(inputs: Inputs, given: Given | None = None) -> tuple[list[Argument], list[memoryview]]:
    """A case's arguments for a frame, with the buffers that carry its tensors, between red zones where `given` is."""
    arguments: list[Argument] = []
    buffers: list[memoryview] = []
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            before, after = given.zones(value) if given else (0, 0)
            spec = spec_of(value)
            arguments.append(Argument(name=name, tensor=spec, data=len(buffers), before=before, after=after))
            buffers.append(guarded(value, before, after) if given else to_buffer(value))
        else:
            arguments.append(Argument.plain(name, value))
    return arguments, buffers


def send_arguments(worker: WorkerHandle, task: Task, arguments: Inputs) -> None:
    """Give a worker without a GPU the arguments of a call, without red zones."""
    described, buffers = cpu_arguments(arguments)
    sets = [[argument.model_dump() for argument in described]]
    worker.request("inputs", task.file.timeout_s, list(buffers), sets=sets)


def _run_in_frames(worker: WorkerHandle, task: Task, arguments: Inputs, given: Given) -> Done:
    for name in arguments.keys() - given.inputs.keys():
        poison(arguments[name])
    if given.before is not None:
        described, buffers = cpu_arguments(arguments | given.before, given)
        worker.request("inputs", task.file.timeout_s, list(buffers), sets=[[item.model_dump() for item in described]])
        worker.request("call", task.file.timeout_s, boxes=[], keep=False)
    described, buffers = cpu_arguments(arguments, given)
    sets = [[argument.model_dump() for argument in described]]
    again = given.before is not None
    worker.request("inputs", task.file.timeout_s, list(buffers), sets=sets, again=again)
    reply, received = worker.request("call", task.file.timeout_s, boxes=[], keep=given.keep)
    if given.times:
        worker.request("returned", task.file.timeout_s, times=given.times)
    after: Inputs = {}
    trespasses: dict[str, str] = {}
    try:
        specs = [TensorSpec.model_validate(spec) for spec in reply.get("outputs", [])]
        outputs = [from_buffer(spec, received[index]) for index, spec in enumerate(specs)]
        tensors = [argument for argument in described if argument.tensor is not None]
        for item, buffer in zip(tensors, received[len(outputs) :], strict=True):
            assert item.tensor is not None
            after[item.name] = from_buffer(item.tensor, buffer, item.before, item.after)
            trespasses[item.name] = trespass(torch.frombuffer(buffer, dtype=torch.uint8), item.before, item.after)
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RuntimeError, MemoryError) as error:
        raise WorkerFailure(Status.CRASHED, f"the process described its outputs wrongly: {error}") from None
    return Done(outputs, after, trespasses)


def _run_on_device(worker: WorkerHandle, task: Task, arguments: Inputs, given: Given) -> Done:
    shared, described = share_inputs(arguments | (given.before or {}), given)
    boxes = Boxes(given.contract)
    worker.request("inputs", task.file.timeout_s, sets=[[argument.model_dump() for argument in described]])
    if given.before is not None:
        worker.request("call", task.file.timeout_s, boxes=boxes.described, keep=False)
        for name, tensor in shared.items():
            tensor.fill_from(arguments[name])
        plain = [Argument.plain(name, value) for name, value in arguments.items() if name not in shared]
        worker.request("inputs", task.file.timeout_s, sets=[[item.model_dump() for item in plain]], again=True)
        boxes = Boxes(given.contract)
    for name in arguments.keys() - given.inputs.keys():
        shared[name].poison()
    torch.cuda.synchronize()
    worker.request("call", task.file.timeout_s, boxes=boxes.described, keep=given.keep)
    if given.times:
        worker.request("returned", task.file.timeout_s, times=given.times)
    worker.request("inputs", task.file.timeout_s, sets=[])
    torch.cuda.synchronize()
    after = {name: tensor.copy() for name, tensor in shared.items()}
    return Done(boxes.tensors(), after, {name: tensor.trespass() for name, tensor in shared.items()})


class Boxes:
    """Shared device memory into which a worker copies its outputs; poisoned first."""

    def __init__(self, contract: list[torch.Tensor]) -> None:
        self._shared = [SharedTensor(spec_of(like)) for like in contract]
        for box in self._shared:
            box.poison()
        torch.cuda.synchronize()
        self.described = [box.argument(f"box {index}").model_dump() for index, box in enumerate(self._shared)]

    def tensors(self) -> list[torch.Tensor]:
        """What they hold now."""
        return [box.copy() for box in self._shared]


def share_inputs(inputs: Inputs, given: Given | None = None) -> tuple[dict[str, SharedTensor], list[Argument]]:
    """A case's arguments in shared device memory, between red zones where `given` is, and what a worker opens them
    by."""
    shared: dict[str, SharedTensor] = {}
    arguments: list[Argument] = []
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            shared[name] = SharedTensor(spec_of(value), *(given.zones(value) if given else ()))
            shared[name].fill_from(value)
            arguments.append(shared[name].argument(name))
        else:
            arguments.append(Argument.plain(name, value))
    return shared, arguments
