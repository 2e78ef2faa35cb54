"""The referee's check of a candidate: which runs are made, and one run: inputs, a call, its outputs judged."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from pydantic import ValidationError

from tilewright.evaluation.calibration import Honest, Trial, make_trial
from tilewright.evaluation.comparison import TFLOAT32, Comparison, compare
from tilewright.evaluation.fingerprint import inputs_hash
from tilewright.evaluation.pool import WorkerFailure, WorkerHandle
from tilewright.evaluation.results import CaseCheck, Defect, Status
from tilewright.evaluation.seeds import Seeds
from tilewright.evaluation.taskcode import Inputs, TaskCode
from tilewright.evaluation.tensors import (
    GUARD,
    Argument,
    SharedTensor,
    TensorSpec,
    from_buffer,
    guarded,
    plain_argument,
    poison,
    same_bytes,
    to_buffer,
    trespass,
)
from tilewright.evaluation.values import other_strides
from tilewright.task import Backend, Case, Frontend, Task, TaskError, Values, case_label

CLASSES = [values for values in Values if values not in (Values.DRAWN, Values.INTEGERS)]
SHARE = 3
"""Classes from `CLASSES` that each of several shapes is run on, in turn, beside `integers` and two own draws."""

CHECKER_SLOWDOWN = 4
"""How many times a call's limit the checker may take for one."""


@dataclass(frozen=True)
class Run:
    """One run of a correctness check: a shape, a seed, and a class of values for the floating-point inputs.

    `twice`: the same inputs again must give the same bytes. `strided`: in other strides than the task's own."""

    case: Case
    hidden: bool
    seed: int
    values: Values = Values.DRAWN
    twice: bool = False
    strided: bool = False


def planned_runs(task: Task, backend: Backend, seeds: Seeds, hidden: int) -> list[Run]:
    """Every visible case and `hidden` drawn ones, each on several seeds and classes of values; one run of each shape
    is made twice if the task is deterministic. A task that allows classes has all of them among its runs."""
    shapes = [(case, False) for case in task.correctness_cases(backend)]
    shapes += [(case, True) for case in task.hidden_cases(backend, seeds.next(), hidden)]
    order = random.Random(seeds.next())
    turn = order.sample(CLASSES, len(CLASSES))
    share = max(SHARE, -(-len(turn) // len(shapes)))
    excluded = task.file.values.exclude
    runs: list[Run] = []
    for number, (case, is_hidden) in enumerate(shapes):
        classes = [turn[(share * number + place) % len(turn)] for place in range(share)]
        wanted = [Values.DRAWN, Values.INTEGERS, *classes, Values.DRAWN]
        values = [Values.DRAWN if choice in excluded else choice for choice in wanted]
        again = order.choice([place for place, choice in enumerate(values) if choice is Values.DRAWN])
        for place, choice in enumerate(values):
            twice = task.file.deterministic and place == again
            strided = task.file.strided and place % 3 == 2
            runs.append(Run(case, is_hidden, seeds.next(), choice, twice, strided))
    return runs


def check_case(worker: WorkerHandle, code: TaskCode, planned: Run, backend: Backend) -> CaseCheck:
    """One run on a worker that has loaded the candidate. A wrong result is data; a dead worker raises."""
    trial = make_trial(code, planned.case, planned.seed, planned.values)
    try:
        found = check_trial(code, planned, trial, calls_of(worker, code, backend))
    except WorkerFailure as failure:
        if not failure.status.is_incorrect:
            raise
        found = Comparison(failure.status, str(failure))
    return CaseCheck(
        case=planned.case,
        hidden=planned.hidden,
        values=trial.values,
        strided=planned.strided,
        informative=trial.informative,
        status=found.status,
        message=found.message,
        max_abs_error=found.max_abs_error,
        rel_l2_error=found.rel_l2_error,
        wrong_fraction=found.wrong_fraction,
        inputs_hash=inputs_hash(trial.inputs),
    )


def check_trial(code: TaskCode, planned: Run, trial: Trial, call: Call) -> Comparison:
    """One run on a candidate that `call` reaches: its outputs, its inputs, and a second call where one is planned."""
    inputs = other_strides(trial.inputs, transposed=bool(planned.seed % 2)) if planned.strided else trial.inputs
    arguments = code.arguments(planned.case, inputs, trial.contract)
    given = Given(inputs, trial.contract, odd=planned.strided)
    done = call(arguments, given)
    found = judge(code.task, done.outputs, trial.expected, trial.contract, trial.honest)
    if found.status in (Status.PASSED, Status.WRONG_VALUES, Status.NON_FINITE):
        found = _within_bounds(done) or found
    if found.status is Status.PASSED:
        found = _unmodified(code.task, inputs, done.after) or found
    if found.status is Status.PASSED and planned.twice:
        found = _repeated(done.outputs, call(arguments, given).outputs) or found
    return found


def calls_of(worker: WorkerHandle, code: TaskCode, backend: Backend) -> Call:
    """How the candidate on a worker is called."""
    call = _run_on_device if backend is Backend.CUDA else _run_in_frames
    return lambda arguments, given: call(worker, code.task, arguments, given)


def need_informative(checks: list[CaseCheck]) -> None:
    """Raises `TaskError` where a visible case passed on references alone that tell nothing: all zero, or constant."""
    for case in [check.case for check in checks if not check.hidden]:
        if not any(check.informative for check in checks if check.case == case):
            raise TaskError(
                f"task.py: reference is constant on all inputs of {case_label(case)}, so that any kernel which fills "
                "its output with one number would pass; draw inputs in make_inputs on which results differ"
            )


def judge(
    task: Task,
    outputs: list[torch.Tensor],
    expected: list[torch.Tensor],
    contract: list[torch.Tensor],
    honest: list[Honest | None] | None = None,
) -> Comparison:
    """Compare all outputs of one call; the first that fails answers, else the one with the largest error."""
    if len(outputs) != len(expected):
        return Comparison(Status.NO_OUTPUT, f"{len(outputs)} outputs instead of {len(expected)}")
    worst: Comparison | None = None
    scales = honest or [None] * len(outputs)
    for index, (output, wanted, like) in enumerate(zip(outputs, expected, contract, strict=True)):
        name = task.file.outputs[index] if task.file.outputs else "output" if len(outputs) == 1 else f"output {index}"
        if output.shape != like.shape:
            message = f"{name} has shape {tuple(output.shape)} instead of {tuple(like.shape)}"
            return Comparison(Status.WRONG_SHAPE, message)
        if output.dtype != like.dtype:
            message = f"{name} has dtype {output.dtype} instead of {like.dtype}, which reference gives on these inputs"
            return Comparison(Status.WRONG_DTYPE, message)
        table = TFLOAT32 if task.file.precision == "tfloat32" and like.dtype is torch.float32 else None
        found = compare(name, output, wanted, task.file.tolerance, scales[index], table)
        if found.status is not Status.PASSED:
            return found
        if worst is None or (found.rel_l2_error or 0.0) > (worst.rel_l2_error or 0.0):
            worst = found
    assert worst is not None
    return worst


@dataclass(frozen=True)
class Given:
    """What a call is given beside its arguments: the inputs among them as they were, the empty tensors that its outputs
    must be like, whether tensors lie at odd addresses, and inputs that it is called on first, in the same memory."""

    inputs: Inputs
    contract: list[torch.Tensor]
    odd: bool = False
    before: Inputs | None = None

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


def defects_of(worker: WorkerHandle, code: TaskCode, runs: list[Run]) -> list[Defect]:
    """What the checker finds on the first run of each shape; nothing where the task is not written in cuTile."""
    if code.task.file.frontend is not Frontend.CUTILE:
        return []
    found: dict[tuple[str, str, int], Defect] = {}
    shapes = {case_label(run.case): run for run in reversed(runs)}
    for run in reversed(shapes.values()):
        inputs = make_trial(code, run.case, run.seed, Values.DRAWN).inputs
        arguments = code.arguments(run.case, inputs)
        empty = [name for name in arguments if name not in inputs]
        described, buffers = cpu_arguments(arguments)
        sets = [[argument.model_dump() for argument in described]]
        worker.request("inputs", code.task.file.timeout_s, list(buffers), sets=sets)
        reply, _ = worker.request("check", CHECKER_SLOWDOWN * code.task.file.timeout_s, empty=empty)
        try:
            defects = [Defect.model_validate(item | {"case": run.case}) for item in reply["defects"]]
        except (KeyError, TypeError, ValidationError) as error:
            raise WorkerFailure(Status.CRASHED, f"the process described its defects wrongly: {error}") from None
        for defect in defects:
            found.setdefault((defect.kind, defect.file, defect.line), defect)
    return list(found.values())


def cpu_arguments(inputs: Inputs, given: Given | None = None) -> tuple[list[Argument], list[memoryview]]:
    """A case's arguments for a frame, with the buffers that carry its tensors, between red zones where `given` is."""
    arguments: list[Argument] = []
    buffers: list[memoryview] = []
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            before, after = given.zones(value) if given else (0, 0)
            spec = TensorSpec.of(value)
            arguments.append(Argument(name=name, tensor=spec, buffer=len(buffers), before=before, after=after))
            buffers.append(guarded(value, before, after) if given else to_buffer(value))
        else:
            arguments.append(plain_argument(name, value))
    return arguments, buffers


def _run_in_frames(worker: WorkerHandle, task: Task, arguments: Inputs, given: Given) -> Done:
    for name in arguments.keys() - given.inputs.keys():
        poison(arguments[name])
    if given.before is not None:
        described, buffers = cpu_arguments(arguments | given.before, given)
        worker.request("inputs", task.file.timeout_s, list(buffers), sets=[[item.model_dump() for item in described]])
        worker.request("call", task.file.timeout_s, boxes=[])
    described, buffers = cpu_arguments(arguments, given)
    sets = [[argument.model_dump() for argument in described]]
    again = given.before is not None
    worker.request("inputs", task.file.timeout_s, list(buffers), sets=sets, again=again)
    reply, received = worker.request("call", task.file.timeout_s, boxes=[])
    after: Inputs = {}
    trespasses: dict[str, str] = {}
    try:
        specs = [TensorSpec.model_validate(spec) for spec in reply.get("outputs", [])]
        outputs = [from_buffer(spec, received[index]) for index, spec in enumerate(specs)]
        tensors = [argument for argument in described if argument.tensor is not None]
        for item, buffer in zip(tensors, received[len(specs) :], strict=True):
            assert item.tensor is not None
            after[item.name] = from_buffer(item.tensor, buffer, item.before, item.after)
            trespasses[item.name] = trespass(torch.frombuffer(buffer, dtype=torch.uint8), item.before, item.after)
    except (ValueError, IndexError, RuntimeError) as error:
        raise WorkerFailure(Status.CRASHED, f"the process described its outputs wrongly: {error}") from None
    return Done(outputs, after, trespasses)


def _run_on_device(worker: WorkerHandle, task: Task, arguments: Inputs, given: Given) -> Done:
    shared, described = share_inputs(arguments | (given.before or {}), given)
    boxes = Boxes(given.contract)
    worker.request("inputs", task.file.timeout_s, sets=[[argument.model_dump() for argument in described]])
    if given.before is not None:
        worker.request("call", task.file.timeout_s, boxes=boxes.described)
        for name, tensor in shared.items():
            tensor.fill_from(arguments[name])
        plain = [plain_argument(name, value) for name, value in arguments.items() if name not in shared]
        worker.request("inputs", task.file.timeout_s, sets=[[item.model_dump() for item in plain]], again=True)
        boxes = Boxes(given.contract)
    for name in arguments.keys() - given.inputs.keys():
        shared[name].poison()
    torch.cuda.synchronize()
    worker.request("call", task.file.timeout_s, boxes=boxes.described)
    worker.request("inputs", task.file.timeout_s, sets=[])
    torch.cuda.synchronize()
    after = {name: tensor.copy() for name, tensor in shared.items()}
    return Done(boxes.tensors(), after, {name: tensor.trespass() for name, tensor in shared.items()})


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


def share_inputs(inputs: Inputs, given: Given | None = None) -> tuple[dict[str, SharedTensor], list[Argument]]:
    """A case's arguments in shared device memory, between red zones where `given` is, and what a worker opens them
    by."""
    shared: dict[str, SharedTensor] = {}
    arguments: list[Argument] = []
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            shared[name] = SharedTensor(TensorSpec.of(value), *(given.zones(value) if given else ()))
            shared[name].fill_from(value)
            arguments.append(shared[name].argument(name))
        else:
            arguments.append(plain_argument(name, value))
    return shared, arguments


def _within_bounds(done: Done) -> Comparison | None:
    for name, where in done.trespasses.items():
        if where:
            return Comparison(
                Status.OUT_OF_BOUNDS,
                f"the call wrote outside its argument {name!r}: {where}; look at the last block's index, its mask, and "
                "strides or sizes that are handed to the kernel",
            )
    return None


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


def what_passed(checks: list[CaseCheck]) -> str:
    """What a failure usually means on a hidden case, or on some values of a case, after others had passed."""
    last = checks[-1]
    if not last.status.is_incorrect:
        return ""
    if any(check.case == last.case for check in checks[:-1]):
        return f"; {len(checks) - 1} other runs had passed, of this case too: look at what these values bring"
    if not last.hidden:
        return ""
    return (
        f"; this is a hidden case, after {len(checks) - 1} other runs had passed: look at what a size brings that no "
        "tile divides (padding, masks, the last block)"
    )
