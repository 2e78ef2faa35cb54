"""The referee's check of one case: draw inputs, run the candidate on them, compare its outputs with the reference."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tilewright.evaluation.comparison import Comparison, compare
from tilewright.evaluation.fingerprint import inputs_hash
from tilewright.evaluation.pool import WorkerFailure, WorkerHandle
from tilewright.evaluation.results import CaseCheck, Status
from tilewright.evaluation.seeds import Seeds
from tilewright.evaluation.taskcode import Inputs, TaskCode
from tilewright.evaluation.tensors import (
    Argument,
    SharedTensor,
    TensorSpec,
    from_buffer,
    plain_argument,
    poison,
    same_bytes,
    to_buffer,
)
from tilewright.task import Backend, Case, Task


@dataclass(frozen=True)
class Run:
    """One run of a correctness check. `twice`: the same inputs again must give the same bytes."""

    case: Case
    hidden: bool
    seed: int
    twice: bool = False


def planned_runs(task: Task, backend: Backend, seeds: Seeds, hidden: int) -> list[Run]:
    """Every visible case, `hidden` drawn ones, and the first once more on other values, twice if deterministic."""
    visible = task.correctness_cases(backend)
    runs = [Run(case, False, seeds.next()) for case in visible]
    runs += [Run(case, True, seeds.next()) for case in task.hidden_cases(backend, seeds.next(), hidden)]
    return [*runs, Run(visible[0], False, seeds.next(), twice=task.file.deterministic)]


def check_case(worker: WorkerHandle, code: TaskCode, planned: Run, backend: Backend) -> CaseCheck:
    """One run on a worker that has loaded the candidate. A wrong result is data; a dead worker raises."""
    case = planned.case
    inputs = code.inputs(case, planned.seed)
    fingerprint = inputs_hash(inputs)
    expected = code.expected(case, inputs)
    contract = code.contract(case, inputs)
    run = _run_on_device if backend is Backend.CUDA else _run_in_frames
    try:
        arguments = code.arguments(case, inputs, contract)
        outputs, after = run(worker, code.task, arguments, inputs, contract)
        found = judge(code.task, outputs, expected, contract)
        if found.status is Status.PASSED:
            found = _unmodified(code.task, inputs, after) or found
        if found.status is Status.PASSED and planned.twice:
            again, _ = run(worker, code.task, arguments, inputs, contract)
            found = _repeated(outputs, again) or found
    except WorkerFailure as failure:
        if not failure.status.is_incorrect:
            raise
        found = Comparison(failure.status, str(failure))
    return CaseCheck(
        case=case,
        hidden=planned.hidden,
        status=found.status,
        message=found.message,
        max_abs_error=found.max_abs_error,
        rel_l2_error=found.rel_l2_error,
        wrong_fraction=found.wrong_fraction,
        inputs_hash=fingerprint,
    )


def judge(
    task: Task, outputs: list[torch.Tensor], expected: list[torch.Tensor], contract: list[torch.Tensor]
) -> Comparison:
    """Compare all outputs of one call; the first that fails answers, else the one with the largest error."""
    if len(outputs) != len(expected):
        return Comparison(Status.NO_OUTPUT, f"{len(outputs)} outputs instead of {len(expected)}")
    worst: Comparison | None = None
    for index, (output, wanted, like) in enumerate(zip(outputs, expected, contract, strict=True)):
        name = task.file.outputs[index] if task.file.outputs else "output" if len(outputs) == 1 else f"output {index}"
        if output.shape != like.shape:
            message = f"{name} has shape {tuple(output.shape)} instead of {tuple(like.shape)}"
            return Comparison(Status.WRONG_SHAPE, message)
        if output.dtype != like.dtype:
            message = f"{name} has dtype {output.dtype} instead of {like.dtype}, which reference gives on these inputs"
            return Comparison(Status.WRONG_DTYPE, message)
        found = compare(name, output, wanted, task.file.tolerance)
        if found.status is not Status.PASSED:
            return found
        if worst is None or (found.rel_l2_error or 0.0) > (worst.rel_l2_error or 0.0):
            worst = found
    assert worst is not None
    return worst


def cpu_arguments(inputs: Inputs) -> tuple[list[Argument], list[memoryview]]:
    """A case's arguments for a frame, with the buffers that carry its tensors."""
    arguments: list[Argument] = []
    buffers: list[memoryview] = []
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            arguments.append(Argument(name=name, tensor=TensorSpec.of(value), buffer=len(buffers)))
            buffers.append(to_buffer(value))
        else:
            arguments.append(plain_argument(name, value))
    return arguments, buffers


def _run_in_frames(
    worker: WorkerHandle, task: Task, arguments: Inputs, inputs: Inputs, contract: list[torch.Tensor]
) -> tuple[list[torch.Tensor], Inputs]:
    for name in arguments.keys() - inputs.keys():
        poison(arguments[name])
    described, buffers = cpu_arguments(arguments)
    sets = [[argument.model_dump() for argument in described]]
    worker.request("inputs", task.file.timeout_s, list(buffers), sets=sets)
    reply, received = worker.request("call", task.file.timeout_s, boxes=[])
    try:
        specs = [TensorSpec.model_validate(spec) for spec in reply.get("outputs", [])]
        outputs = [from_buffer(spec, received[index]) for index, spec in enumerate(specs)]
        tensors = [argument for argument in described if argument.tensor is not None]
        returned = zip(tensors, received[len(specs) :], strict=True)
        after = {item.name: from_buffer(item.tensor, buffer) for item, buffer in returned if item.tensor is not None}
    except (ValueError, IndexError, RuntimeError) as error:
        raise WorkerFailure(Status.CRASHED, f"the process described its outputs wrongly: {error}") from None
    return outputs, after


def _run_on_device(
    worker: WorkerHandle, task: Task, arguments: Inputs, inputs: Inputs, contract: list[torch.Tensor]
) -> tuple[list[torch.Tensor], Inputs]:
    shared, described = share_inputs(arguments)
    for name in arguments.keys() - inputs.keys():
        shared[name].poison()
    boxes = Boxes(contract)
    worker.request("inputs", task.file.timeout_s, sets=[[argument.model_dump() for argument in described]])
    worker.request("call", task.file.timeout_s, boxes=boxes.described)
    worker.request("inputs", task.file.timeout_s, sets=[])
    torch.cuda.synchronize()
    after = {name: tensor.copy() for name, tensor in shared.items()}
    return boxes.tensors(), after


class Boxes:
    """Shared device memory into which a worker copies its outputs; poisoned first."""

    def __init__(self, contract: list[torch.Tensor]) -> None:
        self._shared = [SharedTensor(TensorSpec.of(like)) for like in contract]
        for box in self._shared:
            box.poison()
        torch.cuda.synchronize()
        self.described = [box.argument(f"box {index}").model_dump() for index, box in enumerate(self._shared)]

    def tensors(self) -> list[torch.Tensor]:
        """What they hold now."""
        return [box.copy() for box in self._shared]


def share_inputs(inputs: Inputs) -> tuple[dict[str, SharedTensor], list[Argument]]:
    """A case's arguments in shared device memory, and what a worker opens them by."""
    shared: dict[str, SharedTensor] = {}
    arguments: list[Argument] = []
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            shared[name] = SharedTensor(TensorSpec.of(value))
            shared[name].fill_from(value)
            arguments.append(shared[name].argument(name))
        else:
            arguments.append(plain_argument(name, value))
    return shared, arguments


def _repeated(first: list[torch.Tensor], second: list[torch.Tensor]) -> Comparison | None:
    for index, (one, other) in enumerate(zip(first, second, strict=True)):
        if not same_bytes(one, other):
            return Comparison(
                Status.NONDETERMINISTIC,
                f"output {index} differs between two calls on the same inputs: a race, an atomic sum or memory that "
                "was never written; if the task allows it, it says deterministic = false",
            )
    return None


def _unmodified(task: Task, before: Inputs, after: Inputs) -> Comparison | None:
    for name, value in before.items():
        if name in task.file.outputs or not isinstance(value, torch.Tensor) or name not in after:
            continue
        if not same_bytes(value, after[name]):
            return Comparison(
                Status.INPUT_MODIFIED,
                f"the call wrote to its input {name!r}; if that is its purpose, the task must name it in `outputs`",
            )
    return None
