"""A whole correctness check: every planned run, what the checker sees, and the rules that the task makes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from threading import Event
from typing import Protocol

from tilewright.evaluation.calling import calls_of
from tilewright.evaluation.correctness import Run, defects_of, need_informative
from tilewright.evaluation.crew import Runs, Tell
from tilewright.evaluation.pool import WorkerFailure, WorkerHandle
from tilewright.evaluation.results import CorrectnessResult, Defect, Status
from tilewright.evaluation.statelessness import depends_on_earlier_calls
from tilewright.evaluation.taskcode import TaskCode
from tilewright.evaluation.withholding import computed_elsewhere
from tilewright.task import Backend, Frontend, case_label


class Start(Protocol):
    """Starts workers that have loaded the candidate."""

    def __call__(self, *, count: int = 1, withheld: bool = False) -> AbstractContextManager[Sequence[WorkerHandle]]:
        """`withheld`: their launches do nothing."""


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


def judged(
    code: TaskCode,
    backend: Backend,
    runs: list[Run],
    start: Start,
    tell: Tell,
    ahead_bytes: int,
    workers: int,
) -> CorrectnessResult:
    """Check a candidate on `runs`, on several workers side by side; for `ahead_bytes` see `Runs`. Raises
    `WorkerFailure` where it could not even be loaded."""
    with start(count=workers) as crew:
        found = Runs(code, backend, runs, tell, ahead_bytes=ahead_bytes).on(crew)
        if not found.passed:
            return found
        need_informative(found.cases)
        worker = crew[0]
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
    judge: Callable[[int], CorrectnessResult],
    aside: AbstractContextManager[Event | None],
    deadline: float = math.inf,
    workers: int = 1,
) -> CorrectnessResult:
    """What a check on so many workers shows beside which other work is done, if `aside` gives what ends that. A failure
    that the other work or the other workers may have brought about, by the memory or the time that they take, is judged
    again alone, on one worker, before `deadline` (monotonic seconds). Raises what `judge` does."""
    stop: Event | None = None

    def disturbed(status: Status) -> bool:
        return (stop is not None or workers > 1) and status in DISTURBED and time.monotonic() < deadline

    try:
        with aside as stop:
            result = judge(workers)
            if stop is not None and not result.passed:
                stop.set()
        if not disturbed(result.status):
            return result
    except Exception as error:  # of the referee itself, too, which has the reference on the GPU
        if not disturbed(error.status if isinstance(error, WorkerFailure) else Status.VOID):
            raise
    return judge(1)


def judged_widely(
    code: TaskCode,
    backend: Backend,
    runs: list[Run],
    start: Start,
    tell: Tell,
    ahead_bytes: int,
    workers: int,
    *,
    limit_s: float,
) -> CorrectnessResult:
    """Check a candidate on as many of `runs` as `limit_s` seconds are enough for, one at least, and nothing else.
    Raises `WorkerFailure` where it could not even be loaded."""
    with start(count=workers) as crew:
        found = Runs(code, backend, runs, tell, time.monotonic() + limit_s, ahead_bytes).on(crew)
    return found.model_copy(update={"wanted": len({case_label(run.case) for run in runs})})


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
        with start() as (fresh,):
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
        with start(withheld=True) as (idle,):
            if found := computed_elsewhere(code, runs, calls_of(idle, code, backend)):
                return Status.LIBRARY_CALLS, found
    if rules.state == "forbid":
        tell("comparing with a fresh process")
        with start() as (fresh,):
            warm = calls_of(worker, code, backend)
            if found := depends_on_earlier_calls(code, runs, warm, calls_of(fresh, code, backend)):
                return Status.STATEFUL, found
    return Status.PASSED, ""
