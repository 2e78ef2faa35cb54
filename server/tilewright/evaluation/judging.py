"""A whole correctness check: every planned run, what the checker sees, and the rules that the task makes."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from threading import Event, Lock
from typing import Protocol

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
from tilewright.task import Backend, Case, Frontend, case_label

Tell = Callable[[str], None]
Shape = list[tuple[int, Run]]
"""Runs of one shape, one after the other, with their numbers."""
COMPILING, OFTEN = 2, 2
"""What it costs to compile for a shape, and what a run of a task's own shape costs, beside a run of a hidden one."""
FEW = 4
"""An axis with at most so many values may be a constant of a kernel."""


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
    code: TaskCode, backend: Backend, runs: list[Run], start: Start, tell: Tell, workers: int = 1
) -> CorrectnessResult:
    """Check a candidate on `runs`, on several workers side by side. Raises `WorkerFailure` where it could not even be
    loaded."""
    with start(count=workers) as crew:
        found = _Runs(code, backend, runs, tell).on(crew)
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
    code: TaskCode, backend: Backend, runs: list[Run], start: Start, tell: Tell, limit_s: float, workers: int = 1
) -> CorrectnessResult:
    """Check a candidate on as many of `runs` as `limit_s` seconds are enough for, one at least, and nothing else.
    Raises `WorkerFailure` where it could not even be loaded."""
    with start(count=workers) as crew:
        found = _Runs(code, backend, runs, tell, time.monotonic() + limit_s).on(crew)
    return found.model_copy(update={"wanted": len({case_label(run.case) for run in runs})})


def shared_out(shapes: Sequence[Shape], count: int) -> list[list[Shape]]:
    """The shapes of a check for each of `count` workers, in their order. Shapes for which a compiler may make the same
    kernel lie together. Each worker gets a stretch of them that costs as much to compile and to run as the others'; the
    task's own shapes are run often. Whichever worker is faster, each has the same ones again."""
    look = _alike([shape[0][1].case for shape in shapes])
    costed = [
        (shape, COMPILING * (not number) + len(shape) * (1 if shape[0][1].hidden else OFTEN))
        for _, group in itertools.groupby(sorted(shapes, key=look), key=look)
        for number, shape in enumerate(group)
    ]
    total = sum(cost for _, cost in costed)
    shares: list[list[Shape]] = [[] for _ in range(count)]
    done = 0
    for shape, cost in costed:
        shares[(2 * done + cost) * count // (2 * total)].append(shape)  # by where its middle lies
        done += cost
    return [sorted(share, key=lambda shape: shape[0][0]) for share in shares]


def _alike(cases: Sequence[Case]) -> Callable[[Shape], tuple[str, ...]]:
    """Gives what of a shape may matter to a compiler, the last axes first. Of an axis that has few values, that is the
    value. Of another integer, it is whether this is 1, and whether it is a multiple of 16."""
    few = {axis for axis in {axis for case in cases for axis in case} if len({case.get(axis) for case in cases}) <= FEW}

    def look(shape: Shape) -> tuple[str, ...]:
        return tuple(
            str(value) if axis in few or not isinstance(value, int) else f"{value == 1} {value % 16 == 0}"
            for axis, value in reversed(shape[0][1].case.items())
        )

    return look


class _Runs:
    """The runs of a check: those up to the first that fails, or to the first after `deadline`.

    Workers compile, and run kernels, side by side; the referee does one thing at a time, while they do. All runs of a
    shape are one worker's, in their order: what it returned first has to stand to the last.
    """

    def __init__(
        self, code: TaskCode, backend: Backend, runs: Sequence[Run], tell: Tell, deadline: float = math.inf
    ) -> None:
        self._code = code
        self._backend = backend
        self._tell = tell
        self._deadline = deadline
        self._count = self._first_failure = len(runs)
        self._checks: dict[int, CaseCheck] = {}
        self._output = ""
        self._turn = Lock()
        self._shapes = [
            [*group]
            for _, group in itertools.groupby(enumerate(runs), key=lambda numbered: case_label(numbered[1].case))
        ]

    def on(self, workers: Sequence[WorkerHandle]) -> CorrectnessResult:
        """What they show on these workers, which have loaded the candidate."""
        if len(workers) == 1:
            self._work(workers[0], self._shapes)
        else:
            shares = shared_out(self._shapes, len(workers))
            with ThreadPoolExecutor(len(workers)) as threads:
                working = [
                    threads.submit(self._take_turns, worker, share)
                    for worker, share in zip(workers, shares, strict=True)
                ]
            for one in working:
                one.result()
        if self._first_failure == self._count:
            until = next((number for number in range(self._count) if number not in self._checks), self._count)
            return CorrectnessResult(status=Status.PASSED, cases=[self._checks[number] for number in range(until)])
        checks = [check for number, check in sorted(self._checks.items()) if number <= self._first_failure]
        last = checks[-1]
        text = f"{last.label}: {last.message}{what_passed(checks)}" if last.message else ""
        return CorrectnessResult(status=last.status, message=text, cases=checks, output=self._output)

    def _take_turns(self, worker: WorkerHandle, shapes: Sequence[Shape]) -> None:
        worker.meanwhile = self._released
        with self._turn:
            try:
                self._work(worker, shapes)
            except BaseException:
                self._first_failure = -1
                raise
            finally:
                worker.meanwhile = contextlib.nullcontext

    @contextlib.contextmanager
    def _released(self) -> Iterator[None]:
        self._turn.release()
        try:
            yield
        finally:
            self._turn.acquire()

    def _work(self, worker: WorkerHandle, shapes: Sequence[Shape]) -> None:
        kept: Kept = {}
        for place, (number, planned) in enumerate(itertools.chain.from_iterable(shapes)):
            if number > self._first_failure or (place and time.monotonic() > self._deadline):
                return
            self._tell(f"checking run {len(self._checks) + 1} of {self._count}")
            self._check(number, planned, worker, kept)

    def _check(self, number: int, planned: Run, worker: WorkerHandle, kept: Kept) -> None:
        output = ""
        try:
            found = check_case(worker, self._code, planned, self._backend, kept)
        except WorkerFailure as failure:
            output = failure.output
            found = CaseCheck(
                case=planned.case,
                hidden=planned.hidden,
                values=planned.values,
                strided=planned.strided,
                status=failure.status,
                message=str(failure),
            )
        self._checks[number] = found
        if found.status is not Status.PASSED and number < self._first_failure:
            self._first_failure, self._output = number, output or worker.output()


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
