"""The runs of a check on several workers: which of them makes which, and what the referee does while they are busy."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from threading import Condition
from typing import Protocol

from tilewright.evaluation.calibration import Trial, make_trial
from tilewright.evaluation.calling import Kept
from tilewright.evaluation.correctness import UNCOMPARED, Run, check_case, what_passed
from tilewright.evaluation.pool import WorkerFailure, WorkerHandle
from tilewright.evaluation.results import CaseCheck, CorrectnessResult, Status
from tilewright.evaluation.taskcode import TaskCode
from tilewright.frontends.protocol import Choice
from tilewright.task import Backend, Case, case_label

Tell = Callable[[str], None]
"""Reports progress."""
Shape = list[tuple[int, Run]]
"""Runs of one shape, one after the other, with their numbers."""
COMPILING, OFTEN = 2, 2
"""What it costs to compile for a shape, and what a run of a task's own shape costs, beside a run of a hidden one."""
FEW = 4
"""An axis with at most so many values may be a constant of a kernel."""


class Start(Protocol):
    """Starts workers that have loaded the candidate."""

    def __call__(
        self, *, count: int = 1, tuner: Choice | None = None
    ) -> AbstractContextManager[Sequence[WorkerHandle]]:
        """`tuner`: what tuners of the candidate take."""


@dataclass(frozen=True)
class Check:
    """What a check of a candidate goes by. `ahead_bytes`: about how many bytes the trials may take that are made ahead,
    on several workers. `mismatches`: the folder for what is seen where a whole output is wrong. `tunes`: the text names
    a tuner that frontends answer; `switched`: it names the variable that leaves a config as it is."""

    code: TaskCode
    backend: Backend
    start: Start
    tell: Tell
    ahead_bytes: int = 0
    workers: int = 1
    mismatches: Path | None = None
    tunes: bool = False
    switched: bool = False


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


class Turn:
    """One thread at a time has the turn. Who works ahead has it while nobody else wants it."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._taken = False
        self._waiting = 0

    def take(self) -> None:
        """Wait for the turn."""
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: not self._taken)
            self._waiting -= 1
            self._taken = True

    def take_idle(self, due: Callable[[], bool], over: Callable[[], bool]) -> bool:
        """Wait until the turn is idle and something is `due`. False once it is `over`."""
        with self._changed:
            self._changed.wait_for(lambda: over() or (not (self._taken or self._waiting) and due()))
            if over():
                return False
            self._taken = True
            return True

    def give_back(self) -> None:
        """Let another thread have it."""
        with self._changed:
            self._taken = False
            self._changed.notify_all()

    @contextlib.contextmanager
    def given_back(self) -> Iterator[None]:
        """Let other threads have it while the block runs."""
        self.give_back()
        try:
            yield
        finally:
            self.take()


class Runs:
    """The runs of a check: those up to the first that fails, or to the first after `deadline`.

    Workers compile, and run kernels, side by side; the referee does one thing at a time, while they do. While all of
    them are at work, it makes trials of further runs. All runs of a shape are one worker's, in their order: what it
    returned first has to stand to the last.
    """

    def __init__(self, by: Check, runs: Sequence[Run], deadline: float = math.inf) -> None:
        self._by = by
        self._deadline = deadline
        self._count = self._first_failure = len(runs)
        self._checks: dict[int, CaseCheck] = {}
        self._begun: set[int] = set()
        self._ahead: dict[int, Trial] = {}
        self._output = ""
        self._turn = Turn()
        self._over = False
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
            notes = [f"on {'; '.join([*left][:3])}{', …' if len(left) > 3 else ''} {UNCOMPARED}"] if left else []
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
        with ThreadPoolExecutor(len(workers) + 1) as threads:
            working = [
                threads.submit(self._take_turns, worker, share) for worker, share in zip(workers, shares, strict=True)
            ]
            if self._by.ahead_bytes:
                threads.submit(self._make_ahead, shares)
            wait(working)
            self._over = True
            self._turn.give_back()  # wakes who works ahead
        self._ahead.clear()
        for one in working:
            one.result()

    def _take_turns(self, worker: WorkerHandle, shapes: Sequence[Shape]) -> None:
        worker.meanwhile = self._turn.given_back
        self._turn.take()
        try:
            self._work(worker, shapes)
        except BaseException:
            self._first_failure = -1
            raise
        finally:
            worker.meanwhile = contextlib.nullcontext
            self._turn.give_back()

    def _make_ahead(self, shares: Sequence[Sequence[Shape]]) -> None:
        """Make trials in the order in which workers will want them. Where one cannot be made, the run finds out why."""
        in_turns = itertools.zip_longest(*(itertools.chain.from_iterable(share) for share in shares))
        for number, planned in filter(None, itertools.chain.from_iterable(in_turns)):
            if not self._turn.take_idle(self._has_room, lambda: self._over):
                return
            try:
                if number not in self._begun and number <= self._first_failure:
                    self._ahead[number] = make_trial(self._by.code, planned.case, planned.seed, planned.values)
            except Exception:  # it may be that the GPU's memory does not suffice
                self._ahead.clear()
                return
            finally:
                self._turn.give_back()

    def _has_room(self) -> bool:
        return sum(trial.nbytes for trial in self._ahead.values()) < self._by.ahead_bytes

    def _work(self, worker: WorkerHandle, shapes: Sequence[Shape]) -> None:
        kept: Kept = {}
        for place, (number, planned) in enumerate(itertools.chain.from_iterable(shapes)):
            if number > self._first_failure or (place and time.monotonic() > self._deadline):
                return
            self._by.tell(f"checking run {len(self._checks) + 1} of {self._count}")
            self._begun.add(number)
            self._check(number, planned, worker, kept)

    def _check(self, number: int, planned: Run, worker: WorkerHandle, kept: Kept) -> None:
        output = ""
        try:
            by, made = self._by, self._ahead.pop(number, None)
            found = check_case(worker, by.code, planned, by.backend, kept, made, by.mismatches)
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
