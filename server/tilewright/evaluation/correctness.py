"""The referee's check of a candidate: which runs are made, and one run: inputs, a call, its outputs judged."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from pydantic import ValidationError

from tilewright.cases import volume
from tilewright.evaluation.calibration import STEP, Honest, Trial, calibrate, make_trial
from tilewright.evaluation.calling import (
    MANY_CALLS,
    MORE_CALLS,
    Call,
    Done,
    Given,
    calls_of,
    send_arguments,
)
from tilewright.evaluation.comparison import TFLOAT32, Comparison, compare
from tilewright.evaluation.pool import WorkerFailure, WorkerHandle
from tilewright.evaluation.results import CaseCheck, CaseRun, Defect, Status
from tilewright.evaluation.seeds import Seeds
from tilewright.evaluation.taskcode import Inputs, TaskCode
from tilewright.evaluation.tensors import same_bytes, spec_of
from tilewright.evaluation.ties import without_ties
from tilewright.evaluation.values import nudged, other_strides
from tilewright.task import Backend, Case, Frontend, Task, TaskError, Values, case_label
from tilewright.wire.record import misfit

CLASSES = [values for values in Values if values not in (Values.DRAWN, Values.INTEGERS)]
SHARE = 2
"""Classes from `CLASSES` that each of several shapes is run on, in turn, beside `integers` and two own draws."""

OTHER_DRAW = 8
"""Makes of a run's seed that of a draw which no other call sees."""
FLOAT32_SAMPLES = 8
"""Draws of float32's rounding errors, where a candidate's values seem wrong."""
FLOAT32_ROOM = 4.0
"""Times the error of the reference in float32 that has to be within the bounds, for values to be compared: an honest
kernel's order of operations is another, and its error is larger on some inputs."""
UNCOMPARED = "the values were not compared: float32 arithmetic misses the tolerance on these inputs"
CHECKER_SLOWDOWN = 6
"""How many times a call's limit the checker may take for its calls: it makes five, and some more to find a line."""


@dataclass(frozen=True)
class Run:
    """One run of a correctness check: a shape, a seed, and a class of values for the floating-point inputs.

    `twice`: the same inputs again must give the same bytes. `strided`: in other strides than the task's own. What the
    `first` run of a shape returned must be the same after the `last`, which is made in memory that held other values in
    a call before."""

    case: Case
    hidden: bool
    seed: int
    values: Values = Values.DRAWN
    twice: bool = False
    strided: bool = False
    first: bool = False
    last: bool = False


def planned_runs(task: Task, backend: Backend, seeds: Seeds, hidden: int, known: Sequence[CaseRun] = ()) -> list[Run]:
    """Every visible case and `hidden` drawn ones, the cheapest first, each on several seeds and classes of values; one
    run of each shape is made twice if the task is deterministic. A task that allows classes has all of them among its
    runs. Then what an earlier candidate failed on, and large hidden cases, once each. Raises `TaskError` if no case is
    for `backend`."""
    shapes = [(case, False) for case in task.correctness_cases(backend)]
    if not shapes:
        raise TaskError(f"no case is for backend {backend}: add a [[cases]] table for it, or one without `backend`")
    shapes += [(case, True) for case in sorted(task.hidden_cases(backend, seeds.next(), hidden), key=volume)]
    order = random.Random(seeds.next())
    turn = order.sample(CLASSES, len(CLASSES))
    share = max(SHARE, -(-len(turn) // len(shapes)))
    excluded = task.file.excluded
    runs: list[Run] = []
    for number, (case, is_hidden) in enumerate(shapes):
        classes = [turn[(share * number + place) % len(turn)] for place in range(share)]
        wanted = [Values.DRAWN, Values.INTEGERS, *classes, Values.DRAWN]
        values = [Values.DRAWN if choice in excluded else choice for choice in wanted]
        twice_at = order.choice([place for place, choice in enumerate(values) if choice is Values.DRAWN])
        for place, choice in enumerate(values):
            twice = task.file.deterministic and place == twice_at
            strided = task.file.strided and place % 3 == 2
            ends = (place == 0, place == len(values) - 1)
            runs.append(Run(case, is_hidden, seeds.next(), choice, twice, strided, *ends))
    large = [Run(case, True, seeds.next()) for case in task.large_cases(backend, seeds.next())]
    visible = [case for case, is_hidden in shapes if not is_hidden]
    again = [
        Run(failed.case, failed.case not in visible, seeds.next(), failed.values, strided=failed.strided)
        for failed in known
        if task.draws(backend, failed.case) and failed.values not in excluded
        if task.file.strided or not failed.strided
    ]
    return runs + again + large


def wide_runs(task: Task, backend: Backend, seeds: Seeds, count: int) -> list[Run]:
    """One run of each of `count` hidden cases, those of `task.wide_cases`, in random order, so that a check which time
    cuts off leaves out none in particular: every second one on the task's own draw, the others on the classes of values
    in turn. A case that meets zeros or ones, which tell little, has a further run on its own draw."""
    cases = task.wide_cases(backend, seeds.next(), count)
    order = random.Random(seeds.next())
    order.shuffle(cases)
    turn = order.sample([Values.INTEGERS, *CLASSES], len(CLASSES) + 1)
    runs: list[Run] = []
    for number, case in enumerate(cases):
        values = turn[number // 2 % len(turn)] if number % 2 else Values.DRAWN
        strided = task.file.strided and number % 3 == 2
        if values not in task.file.excluded:
            runs.append(Run(case, True, seeds.next(), values, strided=strided))
        if values in (*task.file.excluded, Values.ZEROS, Values.ONES):
            runs.append(Run(case, True, seeds.next(), strided=strided))
    return runs


def classes_of(task: Task) -> list[Values]:
    """The classes of values that the task does not exclude."""
    return [values for values in (Values.INTEGERS, *CLASSES) if values not in task.file.excluded]


def class_runs(task: Task, backend: Backend, seeds: Seeds, replayed: Sequence[Case] = ()) -> list[Run]:
    """Every class of values on each visible case. The cases that are `replayed` are left out: a replay judges them."""
    visible = [case for case in task.correctness_cases(backend) if case not in replayed]
    return [Run(case, False, seeds.next(), values) for case in visible for values in classes_of(task)]


def check_case(worker: WorkerHandle, code: TaskCode, planned: Run, backend: Backend) -> CaseCheck:
    """One run on a worker that has loaded the candidate. A wrong result is data, and so is how the worker failed."""
    trial = make_trial(code, planned.case, planned.seed, planned.values)
    try:
        found = check_trial(code, planned, trial, calls_of(worker, code, backend))
    except WorkerFailure as failure:
        found = Comparison(failure.status, str(failure))
    return CaseCheck(
        case=planned.case,
        hidden=planned.hidden,
        values=trial.values,
        strided=planned.strided,
        informative=trial.informative and found.message != UNCOMPARED,
        status=found.status,
        message=found.message,
        max_abs_error=found.max_abs_error,
        rel_l2_error=found.rel_l2_error,
        wrong_fraction=found.wrong_fraction,
        undetermined=found.open,
    )


def check_trial(code: TaskCode, planned: Run, trial: Trial, call: Call) -> Comparison:
    """One run on a candidate that `call` reaches: its outputs, its inputs, a second call where one is planned, and
    after the last run of a shape what the first one returned."""
    inputs = _in_strides(code, planned, trial.inputs)
    arguments = code.arguments(planned.case, inputs, trial.contract)
    returns = not code.task.file.outputs
    times = (MORE_CALLS if planned.hidden else MANY_CALLS) if planned.last and returns else 0
    others = _other_values(code, planned, inputs, trial.contract) if planned.last else None
    given = Given(inputs, trial.contract, planned.strided, others, planned.first and returns, times)
    done = call(arguments, given)
    found = judge_trial(code, planned.case, trial, done.outputs)
    if found.status is Status.WRONG_VALUES and others is not None:
        found = replace(found, message=f"{found.message}; in a call before, the same memory held other values")
    if found.status in (Status.PASSED, Status.WRONG_VALUES, Status.NON_FINITE):
        found = _within_bounds(done) or found
    if found.status is Status.PASSED:
        found = _unmodified(code.task, inputs, done.after) or found
    if found.status is Status.PASSED and planned.twice:
        found = _repeated(done.outputs, call(arguments, Given(inputs, trial.contract, given.odd)).outputs) or found
    return found


def _other_values(code: TaskCode, planned: Run, inputs: Inputs, contract: list[torch.Tensor]) -> Inputs | None:
    """Inputs of another draw, for a call before in the memory of `inputs`; None where that does not fit: where draws
    differ in a number, or in a shape of what goes in or comes out."""
    drawn = code.inputs(planned.case, planned.seed ^ OTHER_DRAW)
    fits = layout(code.contract(planned.case, drawn)) == layout(contract)
    others = _in_strides(code, planned, drawn)
    return others if fits and layout(others) == layout(inputs) else None


def _in_strides(code: TaskCode, planned: Run, inputs: Inputs) -> Inputs:
    if not planned.strided:
        return inputs
    return other_strides(inputs, transposed=bool(planned.seed % 2)) | code.constants_of(inputs)


def layout(values: Inputs | list[torch.Tensor]) -> list[Any]:
    """What two calls' values must share to lie in the same memory."""
    each = values.items() if isinstance(values, dict) else enumerate(values)
    return [(name, spec_of(value) if isinstance(value, torch.Tensor) else value) for name, value in each]


def need_informative(checks: list[CaseCheck]) -> None:
    """Raises `TaskError` where a visible case passed on references alone that tell nothing: all zero, or constant."""
    for case in [check.case for check in checks if not check.hidden]:
        if not any(check.informative for check in checks if check.case == case):
            why = "reference is constant, so that any kernel which fills its output with one number would pass"
            if any(check.message == UNCOMPARED for check in checks if check.case == case):
                why = "float32 arithmetic misses the tolerance, so that no kernel can be judged"
            raise TaskError(
                f"task.py: on all inputs of {case_label(case)}, {why}; draw inputs in make_inputs on which results "
                "differ, or take another size"
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
    tiles = task.file.frontend is not Frontend.TORCH
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
        found = compare(name, output, wanted, task.file.tolerance, scales[index], table, tiles)
        if found.status is not Status.PASSED:
            return found
        used = max(found.used, worst.used if worst else 0.0)
        if worst is None or (found.rel_l2_error or 0.0) > (worst.rel_l2_error or 0.0):
            worst = found
        worst = replace(worst, used=used)
    assert worst is not None
    return worst


def _judge_determined(code: TaskCode, case: Case, trial: Trial, outputs: list[torch.Tensor]) -> Comparison:
    """Compare all outputs of one call on a trial, but for elements that its inputs do not determine."""
    found = judge(code.task, outputs, trial.expected, trial.contract, trial.honest)
    if found.status is not Status.WRONG_VALUES or not code.takes_float64:
        return found
    settled, count = without_ties(code, case, trial.inputs, outputs, trial.expected)
    if not count:
        return found
    rest = judge(code.task, settled, trial.expected, trial.contract, trial.honest)
    return replace(rest, open=count) if rest.status is Status.PASSED else found


def judge_trial(code: TaskCode, case: Case, trial: Trial, outputs: list[torch.Tensor]) -> Comparison:
    """Compare the outputs of one call on a trial. Wrong values count for nothing where float32 arithmetic, too, would
    give such: the message says so then."""
    found = _judge_determined(code, case, trial, outputs)
    if found.status is Status.WRONG_VALUES and code.takes_float64 and not _float32_suffices(code, case, trial):
        return Comparison(Status.PASSED, UNCOMPARED)
    return found


def _float32_suffices(code: TaskCode, case: Case, trial: Trial) -> bool:
    """Whether the reference in float32 stays well within the bounds, at inputs a hair from the trial's. There its
    rounding errors are others each time, as those of another honest kernel are."""
    generator = torch.Generator(device=code.device).manual_seed(0)
    for _ in range(FLOAT32_SAMPLES):
        near = {
            name: value.to(torch.float32) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
            for name, value in nudged(trial.inputs, STEP, 0.0, generator).items()
        }
        try:
            wanted, single = code.expected(case, near), code.expected(case, near, torch.float32)
        except TaskError:  # there is no such arithmetic to compare with
            return True
        outputs = [
            _moved(exact, once, like.dtype) if scales is not None and not scales.exact else exact.to(like.dtype)
            for exact, once, like, scales in zip(wanted, single, trial.contract, trial.honest, strict=True)
        ]
        if judge(code.task, outputs, wanted, trial.contract, trial.honest).status is Status.WRONG_VALUES:
            return False
    return True


def _moved(exact: torch.Tensor, once: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The exact result with `FLOAT32_ROOM` times the error of `once`, in an output's dtype."""
    exact = exact.to(torch.float64)
    return (exact + FLOAT32_ROOM * (once.to(torch.float64) - exact)).to(torch.float32).to(dtype)


def judge_drawn(
    code: TaskCode, case: Case, inputs: Inputs, outputs: list[torch.Tensor], contract: list[torch.Tensor]
) -> Comparison:
    """Compare the outputs of one call on the task's own draw, for whoever makes many: by the bounds of each dtype, and
    only where these are passed over by an honest kernel's error scales, which take ten references. A dtype's bounds
    suit outputs of one scale; in causal attention the first rows are many times larger than the last."""
    expected = code.expected(case, inputs)
    found = judge(code.task, outputs, expected, contract)
    if found.status is not Status.WRONG_VALUES or not code.takes_float64:
        return found
    generator = torch.Generator(device=code.device).manual_seed(0)
    honest = calibrate(code, case, inputs, expected, contract, Values.DRAWN, generator)
    return judge_trial(code, case, Trial(inputs, Values.DRAWN, expected, contract, honest), outputs)


def defects_of(worker: WorkerHandle, code: TaskCode, runs: list[Run], tell: Callable[[str], None]) -> list[Defect]:
    """What the checker finds on the first run of each shape; nothing where the task is not written in cuTile."""
    if code.task.file.frontend is not Frontend.CUTILE:
        return []
    found: dict[tuple[str, str, int], Defect] = {}
    shapes = {case_label(run.case): run for run in reversed(runs)}
    for number, run in enumerate(reversed(shapes.values()), 1):
        tell(f"looking for races and other defects, shape {number} of {len(shapes)}")
        inputs = make_trial(code, run.case, run.seed, Values.DRAWN).inputs
        arguments = code.arguments(run.case, inputs)
        empty = [name for name in arguments if name not in inputs]
        send_arguments(worker, code.task, arguments)
        reply, _ = worker.request("check", CHECKER_SLOWDOWN * code.task.file.timeout_s, empty=empty)
        try:
            defects = [Defect.model_validate(item | {"case": run.case}) for item in reply["defects"]]
        except (KeyError, TypeError, ValidationError) as error:
            raise WorkerFailure(Status.CRASHED, f"the process described its defects wrongly: {misfit(error)}") from None
        for defect in defects:
            found.setdefault((defect.kind, defect.file, defect.line), defect)
    return list(found.values())


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


def what_passed(checks: list[CaseCheck], frontend: Frontend) -> str:
    """What a failure usually means on a hidden case, or on some values of a case, after others had passed."""
    last = checks[-1]
    if not last.status.is_incorrect:
        return ""
    if any(check.case == last.case for check in checks[:-1]):
        return f"; {len(checks) - 1} other runs had passed, of this case too: look at what these values bring"
    if not last.hidden:
        return ""
    brings = "what depends on the size (a fixed shape, a view, a slice)"
    if frontend is not Frontend.TORCH:
        brings = "what a size brings that no tile divides (padding, masks, the last block)"
    return f"; this is a hidden case, after {len(checks) - 1} other runs had passed: look at {brings}"
