"""The runs of a check on several workers: which of them makes which."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from threading import Lock

from tilewright.evaluation.correctness import UNCOMPARED, Run, check_case, what_passed
from tilewright.evaluation.pool import WorkerHandle
from tilewright.evaluation.results import CaseCheck, CorrectnessResult, Status
from tilewright.evaluation.taskcode import TaskCode
from tilewright.task import Backend, Case, case_label
from tilewright.text import few

Tell = Callable[[str], None]
"""Reports progress."""
Shape = list[tuple[int, Run]]
"""Runs of one shape, one after the other, with their numbers."""
Start = Callable[..., AbstractContextManager[Sequence[WorkerHandle]]]
"""Starts workers that have loaded the candidate: `count` of them, or one for each of `choices`, which tuners take."""
DISTURBED = {
    Status.IMPORT_ERROR,
    Status.COMPILE_ERROR,
    Status.RAISED,
    Status.CRASHED,
    Status.TIMEOUT,
    Status.VOID,
}
"""How a check can end by what runs beside it: another process takes memory and time, and disturbs a tuner."""
FEW = 4
"""An axis with at most so many values may be a constant of a kernel."""


@dataclass(frozen=True)
class Check:
    """What a check of a candidate goes by. `tunes`: the text names a tuner that frontends answer; `switched`: it names
    the variable that leaves a config as it is. Without `searches`, tuners take their first config."""

    code: TaskCode
    backend: Backend
    start: Start
    tell: Tell
    workers: int = 1
    tunes: bool = False
    switched: bool = False
    searches: bool = True


def shared_out(shapes: Sequence[Shape], count: int) -> list[list[Shape]]:
    """As many shapes of a check for each of `count` workers, in their order. Shapes for which a compiler may make the
    same kernel lie together."""
    alike, total = sorted(shapes, key=_alike([shape[0][1].case for shape in shapes])), len(shapes)
    return [
        sorted(alike[total * number // count : total * (number + 1) // count], key=lambda shape: shape[0][0])
        for number in range(count)
    ]


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


@contextlib.contextmanager
def _released(lock: Lock) -> Iterator[None]:
    """Let other threads have a lock of this one while the block runs."""
    lock.release()
    try:
        yield
    finally:
        lock.acquire()


@contextlib.contextmanager
def _in_turn(worker: WorkerHandle, turn: Lock) -> Iterator[None]:
    """Hold a lock while the block runs. Release it while the referee waits for the worker."""
    worker.meanwhile = lambda: _released(turn)
    try:
        with turn:
            yield
    finally:
        worker.meanwhile = contextlib.nullcontext


def on_each(by: Check, run: Run, workers: Sequence[WorkerHandle]) -> list[CaseCheck]:
    """How the same run ends on each of several workers, side by side."""
    turn = Lock()

    def one(worker: WorkerHandle) -> CaseCheck:
        with _in_turn(worker, turn):
            return check_case(worker, by.code, run, by.backend)

    with ThreadPoolExecutor(len(workers)) as threads:
        return [*threads.map(one, workers)]


class Runs:
    """The runs of a check: those up to the first that fails, or to the first after `deadline`.

    Workers compile, and run kernels, side by side; the referee does one thing at a time, while they do. All runs of a
    shape are one worker's, in their order: what it returned first has to stand to the last.
    """

    def __init__(
        self, by: Check, runs: Sequence[Run], deadline: float = math.inf, before: int = 0, after: int = 0
    ) -> None:
        """`before`, `after`: how many runs of the same check come before these and after them."""
        self._by = by
        self._before, self._total = before, before + len(runs) + after
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
            self._work_together(workers)
        if self._first_failure == self._count:
            until = next((number for number in range(self._count) if number not in self._checks), self._count)
            checks = [self._checks[number] for number in range(until)]
            left = dict.fromkeys(check.label for check in checks if check.message == UNCOMPARED)
            notes = [f"on {few([*left], 3)} {UNCOMPARED}"] if left else []
            return CorrectnessResult(status=Status.PASSED, cases=checks, notes=notes)
        checks = [check for number, check in sorted(self._checks.items()) if number <= self._first_failure]
        last = checks[-1]
        text = (
            f"{last.label}: {last.message}{what_passed(checks, self._by.code.task.file.frontend)}"
            if last.message
            else ""
        )
        return CorrectnessResult(status=last.status, message=text, cases=checks, output=self._output)

    def _work_together(self, workers: Sequence[WorkerHandle]) -> None:
        shares = shared_out(self._shapes, len(workers))
        with ThreadPoolExecutor(len(workers)) as threads:
            working = [
                threads.submit(self._take_turns, worker, share) for worker, share in zip(workers, shares, strict=True)
            ]
        for one in working:
            one.result()

    def _take_turns(self, worker: WorkerHandle, shapes: Sequence[Shape]) -> None:
        try:
            with _in_turn(worker, self._turn):
                self._work(worker, shapes)
        except BaseException:
            self._first_failure = -1
            raise

    def _work(self, worker: WorkerHandle, shapes: Sequence[Shape]) -> None:
        for place, (number, planned) in enumerate(itertools.chain.from_iterable(shapes)):
            if number > self._first_failure or (place and time.monotonic() > self._deadline):
                return
            self._by.tell(f"checking run {self._before + len(self._checks) + 1} of {self._total}")
            found = self._checks[number] = check_case(worker, self._by.code, planned, self._by.backend)
            if found.status is not Status.PASSED and number < self._first_failure:
                self._first_failure, self._output = number, worker.output()
