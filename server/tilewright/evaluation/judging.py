"""A whole correctness check: every planned run, what the checker sees, and the rules that the task makes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Event

from tilewright.evaluation.calling import Kept, calls_of
from tilewright.evaluation.correctness import (
    Run,
    check_case,
    defects_of,
    need_informative,
    what_passed,
)
from tilewright.evaluation.pool import WorkerFailure, WorkerHandle
from tilewright.evaluation.results import CaseCheck, CorrectnessResult, Defect, Status
from tilewright.evaluation.statelessness import depends_on_earlier_calls
from tilewright.evaluation.taskcode import TaskCode
from tilewright.evaluation.withholding import computed_elsewhere
from tilewright.task import Backend, Frontend, case_label

Start = Callable[[bool], AbstractContextManager[WorkerHandle]]
"""Starts a worker that has loaded the candidate; whether its launches are withheld."""
Tell = Callable[[str], None]
DISTURBED = {
    Status.STATEFUL,
    Status.IMPORT_ERROR,
    Status.COMPILE_ERROR,
    Status.RAISED,
    Status.CRASHED,
    Status.TIMEOUT,
    Status.VOID,
}
"""How a check can end by what runs beside it: another process takes memory and time, and disturbs a tuner."""


def judged(code: TaskCode, backend: Backend, runs: list[Run], start: Start, tell: Tell) -> CorrectnessResult:
    """Check a candidate on `runs`. Raises `WorkerFailure` where it could not even be loaded."""
    with start(False) as worker:
        found = _ran(worker, code, backend, runs, tell)
        if not found.passed:
            return found
        need_informative(found.cases)
        defects: list[Defect] = []
        note = output = ""
        try:
            status, text = _rule_broken(worker, code, backend, runs, start, tell)
            if status is Status.PASSED:
                defects, note = _watched(worker, code, backend, runs, start, tell)
        except WorkerFailure as failure:
            status, text, output = failure.status, str(failure), failure.output
        if defects:
            more = f"; {len(defects) - 1} more" if len(defects) > 1 else ""
            status, text = Status.DEFECTIVE, f"{case_label(defects[0].case)}: {defects[0].text}{more}"
        return CorrectnessResult(
            status=status, message=text, cases=found.cases, defects=defects, note=note, output=output
        )


def judged_undisturbed(
    judge: Callable[[], CorrectnessResult], aside: AbstractContextManager[Event | None], deadline: float = math.inf
) -> CorrectnessResult:
    """What a check shows beside which other work is done, if `aside` gives what ends that. A failure that the other
    work may have brought about, by the memory or the time that it takes, is judged again alone, before `deadline`
    (monotonic seconds). Raises what `judge` does."""
    stop: Event | None = None

    def disturbed(status: Status) -> bool:
        return stop is not None and status in DISTURBED and time.monotonic() < deadline

    try:
        with aside as stop:
            result = judge()
            if stop is not None and not result.passed:
                stop.set()
        if not disturbed(result.status):
            return result
    except Exception as error:  # of the referee itself, too, which has the reference on the GPU
        if not disturbed(error.status if isinstance(error, WorkerFailure) else Status.VOID):
            raise
    return judge()


def judged_widely(
    code: TaskCode, backend: Backend, runs: list[Run], start: Start, tell: Tell, limit_s: float
) -> CorrectnessResult:
    """Check a candidate on as many of `runs` as `limit_s` seconds are enough for, one at least, and nothing else.
    Raises `WorkerFailure` where it could not even be loaded."""
    with start(False) as worker:
        found = _ran(worker, code, backend, runs, tell, time.monotonic() + limit_s)
    return found.model_copy(update={"wanted": len({case_label(run.case) for run in runs})})


def _ran(
    worker: WorkerHandle, code: TaskCode, backend: Backend, runs: list[Run], tell: Tell, deadline: float = math.inf
) -> CorrectnessResult:
    """What the runs up to the first that fails show, or to the first after `deadline`."""
    checks: list[CaseCheck] = []
    kept: Kept = {}
    for number, planned in enumerate(runs):
        if checks and time.monotonic() > deadline:
            break
        tell(f"checking run {number + 1} of {len(runs)}")
        output = ""
        try:
            checks.append(check_case(worker, code, planned, backend, kept))
        except WorkerFailure as failure:
            checks.append(
                CaseCheck(
                    case=planned.case,
                    hidden=planned.hidden,
                    values=planned.values,
                    strided=planned.strided,
                    status=failure.status,
                    message=str(failure),
                )
            )
            output = failure.output
        if (last := checks[-1]).status is not Status.PASSED:
            text = f"{last.label}: {last.message}{what_passed(checks)}" if last.message else ""
            return CorrectnessResult(status=last.status, message=text, cases=checks, output=output or worker.output())
    return CorrectnessResult(status=Status.PASSED, cases=checks)


def _watched(
    worker: WorkerHandle, code: TaskCode, backend: Backend, runs: list[Run], start: Start, tell: Tell
) -> tuple[list[Defect], str]:
    """What the checker finds in a right kernel, where there is one: in its first calls in a process, and after many.
    That watching takes long is not its fault; then the second says so."""
    if backend is not Backend.CPU or code.task.file.frontend is not Frontend.CUTILE:
        return [], ""
    tell("looking for races and other defects")
    where = ""
    try:
        with start(False) as fresh:
            found = defects_of(fresh, code, runs)
        where = " in a process that had made many calls"
        return found or defects_of(worker, code, [run for run in runs if not run.hidden]), ""
    except WorkerFailure as failure:
        if failure.status is not Status.TIMEOUT:
            raise
        return [], f"not looked at for races and other defects{where}, which took too long"


def _rule_broken(
    worker: WorkerHandle, code: TaskCode, backend: Backend, runs: list[Run], start: Start, tell: Tell
) -> tuple[Status, str]:
    """Which rule of the task a right candidate breaks, which was called often on `worker`, and how; passed if none."""
    rules = code.task.file
    if rules.library_calls == "forbid":
        tell("looking for what is computed beside the kernels")
        with start(True) as idle:
            if found := computed_elsewhere(code, runs, calls_of(idle, code, backend)):
                return Status.LIBRARY_CALLS, found
    if rules.state == "forbid":
        tell("comparing with a fresh process")
        with start(False) as fresh:
            warm = calls_of(worker, code, backend)
            if found := depends_on_earlier_calls(code, runs, warm, calls_of(fresh, code, backend)):
                return Status.STATEFUL, found
    return Status.PASSED, ""
