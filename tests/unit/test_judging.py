"""A check beside other work and on several workers: what these may have brought about is judged again alone."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tilewright.evaluation import crew as crews
from tilewright.evaluation import tuners
from tilewright.evaluation.correctness import Run
from tilewright.evaluation.crew import DISTURBED, Check, shared_out
from tilewright.evaluation.judging import judged_fairly, judged_undisturbed, judged_widely
from tilewright.evaluation.pool import WorkerFailure, WorkerHandle
from tilewright.evaluation.results import CaseCheck, CorrectnessResult, Status
from tilewright.task import Backend, Case, Frontend, Values

CODE: Any = SimpleNamespace(task=SimpleNamespace(file=SimpleNamespace(frontend=Frontend.CUTILE)))
ALONE = Check(CODE, Backend.CPU, cast(Any, None), cast(Any, None))


class Checking:
    """Ends so, one time after the other; notes whether other work went on."""

    def __init__(self, *answers: Status, raises: bool = False) -> None:
        self.answers = [*answers]
        self.raises = raises
        self.beside: list[bool] = []
        self.workers: list[int] = []
        self.stop: Event | None = None
        self.goes_on = False

    def judge(self, by: Check) -> CorrectnessResult:
        self.workers.append(by.workers)
        self.beside.append(self.goes_on)
        answer = self.answers.pop(0)
        if self.raises and answer is not Status.PASSED:
            raise WorkerFailure(answer, "it failed")
        return CorrectnessResult(status=answer)

    @contextlib.contextmanager
    def aside(self) -> Iterator[Event | None]:
        self.stop, self.goes_on = Event(), True
        try:
            yield self.stop
        finally:
            self.goes_on = False


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("status", sorted(DISTURBED))
def test_a_failure_that_other_work_may_cause_is_judged_again_alone(status: Status, raises: bool) -> None:
    check = Checking(status, Status.PASSED, raises=raises)
    assert judged_undisturbed(check.judge, ALONE, check.aside()).passed
    assert check.beside == [True, False]
    check = Checking(status, status, raises=raises)
    if raises:
        with pytest.raises(WorkerFailure):
            judged_undisturbed(check.judge, ALONE, check.aside())
    else:
        assert judged_undisturbed(check.judge, ALONE, check.aside()).status is status
    assert check.beside == [True, False]


@pytest.mark.parametrize("raises", [False, True])
def test_any_other_failure_stands_and_ends_the_other_work(raises: bool) -> None:
    check = Checking(Status.WRONG_VALUES, raises=raises)
    with pytest.raises(WorkerFailure) if raises else contextlib.nullcontext():
        assert judged_undisturbed(check.judge, ALONE, check.aside()).status is Status.WRONG_VALUES
        assert check.stop is not None
        assert check.stop.is_set()
    assert check.beside == [True]


def test_an_error_of_the_referee_beside_other_work_is_tried_again_alone() -> None:
    """The reference takes memory, too."""
    check, errors = Checking(Status.PASSED), [RuntimeError("out of memory")]

    def judge(by: Check) -> CorrectnessResult:
        if errors:
            check.beside.append(check.goes_on)
            raise errors.pop()
        return check.judge(by)

    assert judged_undisturbed(judge, ALONE, check.aside()).passed
    assert check.beside == [True, False]
    errors.append(RuntimeError("out of memory"))
    with pytest.raises(RuntimeError, match="out of memory"):
        judged_undisturbed(judge, ALONE, contextlib.nullcontext())


@pytest.mark.parametrize("raises", [False, True])
def test_without_time_left_a_failure_stands(raises: bool) -> None:
    check = Checking(Status.TIMEOUT, raises=raises)
    with pytest.raises(WorkerFailure) if raises else contextlib.nullcontext():
        assert judged_undisturbed(check.judge, ALONE, check.aside(), time.monotonic() - 1).status is Status.TIMEOUT
    assert check.beside == [True]


def test_what_passes_lets_the_other_work_go_on() -> None:
    check = Checking(Status.PASSED)
    assert judged_undisturbed(check.judge, ALONE, check.aside()).passed
    assert check.stop is not None
    assert not check.stop.is_set()


def test_without_other_work_a_failure_stands() -> None:
    for raises in (False, True):
        check = Checking(Status.CRASHED, raises=raises)
        with pytest.raises(WorkerFailure) if raises else contextlib.nullcontext():
            assert judged_undisturbed(check.judge, ALONE, contextlib.nullcontext()).status is Status.CRASHED
        assert check.beside == [False]


@pytest.mark.parametrize("status", [Status.CRASHED, Status.WRONG_VALUES])
def test_on_several_workers_a_failure_that_they_may_cause_is_judged_again_on_one(status: Status) -> None:
    check = Checking(status, Status.PASSED)
    result = judged_undisturbed(check.judge, replace(ALONE, workers=3), contextlib.nullcontext())
    assert (result.status, check.workers) == (
        (Status.PASSED, [3, 1]) if status in DISTURBED else (Status.WRONG_VALUES, [3])
    )


class Worker:
    """Takes its time for a request; what holds meanwhile is the referee's."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], Any] = contextlib.nullcontext
        self.done: list[tuple[int, int]] = []

    def request(self, seconds: float) -> None:
        with self.meanwhile():
            time.sleep(seconds)

    def output(self) -> str:
        return "printed"


def quiet(_: str) -> None:
    """Nobody is told."""


class Crew:
    """Workers of a check whose runs end as `ends` says by their seed, and take `seconds` on the worker."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int, seconds: float = 0.01) -> None:
        self.workers = [Worker() for _ in range(count)]
        self.seconds = seconds
        self.slow: dict[int, float] = {}
        self.ends: dict[int, Status | Exception] = {}
        self.told: list[str] = []
        self.referee = threading.Lock()
        self.most_at_work = self._at_work = 0
        monkeypatch.setattr(crews, "check_case", self._check_case)

    def _check_case(
        self,
        worker: Worker,
        code: object,
        run: Run,
        backend: Backend,
        *_: None,
    ) -> CaseCheck:
        assert self.referee.acquire(blocking=False), "the referee does one thing at a time"
        self.referee.release()
        self._at_work += 1
        self.most_at_work = max(self.most_at_work, self._at_work)
        worker.request(self.slow.get(run.seed, self.seconds))
        self._at_work -= 1
        worker.done.append((cast(int, run.case["N"]), run.seed))
        end = self.ends.get(run.seed, Status.PASSED)
        if isinstance(end, Exception):
            raise end
        return CaseCheck(case=run.case, hidden=run.hidden, status=end, message=f"run {run.seed}")

    def judged(self, runs: Sequence[Run], limit_s: float = 60.0, classes: Sequence[Run] = ()) -> CorrectnessResult:
        @contextlib.contextmanager
        def start(*, count: int = 1) -> Iterator[list[WorkerHandle]]:
            yield [cast(WorkerHandle, worker) for worker in self.workers[:count]]

        by = Check(CODE, Backend.CPU, start, self.told.append, workers=len(self.workers))
        planned = [*classes, *(replace(run, hidden=True) for run in runs)]
        deadline = time.monotonic() + 60
        return judged_fairly(lambda some: judged_widely(by, some, limit_s), planned, [], deadline, widely=True)

    @property
    def seeds(self) -> list[int]:
        return sorted(seed for worker in self.workers for _, seed in worker.done)


def runs(shapes: int, each: int) -> list[Run]:
    """So many runs of so many shapes, of which every third is alike to a compiler; a run's seed is its number."""
    numbers = range(shapes * each)
    return [Run({"N": 17 + number // each, "D": number // each % 3}, False, number) for number in numbers]


def test_classes_of_values_come_first_and_leave_the_sizes_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    classes = [Run({"N": 5}, False, 100 + number, Values.LARGE) for number in range(3)]
    sizes = runs(3, 1)
    found = Crew(monkeypatch, 1).judged(sizes, classes=classes)
    assert (found.status, found.wanted, found.notes) == (Status.PASSED, 3, [])
    assert [check.message for check in found.cases] == [f"run {number}" for number in (100, 101, 102, 0, 1, 2)]
    cut_off = Crew(monkeypatch, 1).judged(sizes, 0.0, classes)
    assert [check.message for check in cut_off.cases] == ["run 100", "run 0"]
    assert cut_off.notes == ["time was enough for 1 of 3 classes of values on visible cases"]
    own = cut_off.cases[0].model_copy(update={"case": {"N": 9}})
    tuned = CorrectnessResult(status=Status.PASSED, cases=[own, *cut_off.cases[:1]])
    with monkeypatch.context() as patched:
        patched.setattr(tuners, "checked", lambda *_: (tuned, None, []))
        by = replace(ALONE, tunes=True, start=lambda **_: contextlib.nullcontext([]))
        assert judged_widely(by, classes, 0.0).notes == cut_off.notes, "the benchmarked case is of no class"
    crew = Crew(monkeypatch, 1)
    crew.ends[101] = Status.WRONG_VALUES
    wrong = crew.judged(sizes, classes=classes)
    assert (wrong.status, [check.message for check in wrong.cases]) == (Status.WRONG_VALUES, ["run 100", "run 101"])


def test_the_progress_of_a_wide_check_counts_all_of_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Crew(monkeypatch, 1)
    crew.judged(runs(2, 1), classes=[Run({"N": 5}, False, 100)])
    assert crew.told == [f"checking run {number} of 3" for number in (1, 2, 3)]


@pytest.mark.parametrize("count", [1, 3])
def test_all_runs_of_a_shape_are_one_workers_in_their_order(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    crew = Crew(monkeypatch, count)
    found = crew.judged(runs(7, 5))
    assert found.passed
    assert [check.message for check in found.cases] == [f"run {number}" for number in range(35)]
    assert crew.seeds == [*range(35)]
    assert crew.most_at_work == count
    shares = [[seed // 5 for _, seed in worker.done[::5]] for worker in crew.workers]
    assert shares == ([[0, 1, 2, 3, 4, 5, 6]] if count == 1 else [[0, 3], [1, 6], [2, 4, 5]]), "whoever is faster"
    for worker in crew.workers:
        assert [seed for _, seed in worker.done] == sorted(seed for _, seed in worker.done)
        assert all(len([1 for shape, _ in worker.done if shape == one]) == 5 for one, _ in worker.done)
        assert worker.meanwhile is contextlib.nullcontext


def test_what_may_be_one_to_a_compiler_is_one_workers() -> None:
    cases: list[Case] = [{"M": m, "N": n, "dtype": "float32"} for m in (1, 33, 48, 65, 129, 160) for n in (1000, 6144)]
    shapes = [[(number, Run(case, True, number))] for number, case in enumerate(cases)]
    shares = shared_out(shapes, 3)
    found = [[(run.case["M"], run.case["N"]) for [(_, run)] in share] for share in shares]
    assert found == [
        [(33, 1000), (48, 1000), (65, 1000), (129, 1000)],
        [(1, 1000), (33, 6144), (65, 6144), (160, 1000)],
        [(1, 6144), (48, 6144), (129, 6144), (160, 6144)],
    ]
    assert shared_out(shapes, 1) == [shapes]
    assert shared_out([], 2) == [[], []]


@pytest.mark.parametrize("count", [1, 3])
def test_the_first_failure_in_the_order_of_the_runs_counts(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Whichever worker was sooner: run 12 of another shape fails long before run 4 is reached."""
    crew = Crew(monkeypatch, count)
    crew.ends = {4: Status.WRONG_VALUES, 10: Status.NON_FINITE, 12: Status.CRASHED}
    found = crew.judged(runs(7, 5))
    assert found.status is Status.WRONG_VALUES
    assert [check.message for check in found.cases] == [f"run {number}" for number in range(5)]
    assert "4 other runs had passed" in found.message
    assert found.output == "printed"
    assert len(crew.seeds) < 20, "nobody goes on after a failure"
    assert {*range(5)} <= {*crew.seeds}


@pytest.mark.parametrize("count", [1, 3])
def test_what_an_earlier_candidate_failed_on_comes_last(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """On a shape that was checked before: a worker that hangs there fails in no other run."""
    crew = Crew(monkeypatch, count)
    crew.ends = {6: Status.TIMEOUT}
    found = crew.judged([*runs(3, 2), Run({"N": 17, "D": 0}, False, 6), Run({"N": 18, "D": 1}, False, 7)])
    assert (found.status, len(found.cases), crew.seeds[:7]) == (Status.TIMEOUT, 7, [*range(7)])


@pytest.mark.parametrize("count", [1, 3])
def test_an_error_of_the_reference_ends_all_of_it(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    crew = Crew(monkeypatch, count)
    crew.ends = {3: ValueError("no reference")}
    with pytest.raises(ValueError, match="no reference"):
        crew.judged(runs(20, 5))
    assert len(crew.seeds) < 20


@pytest.mark.parametrize("count", [1, 3])
def test_time_that_is_over_ends_a_wide_check(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    crew = Crew(monkeypatch, count, seconds=0.1)
    found = crew.judged(runs(40, 1), limit_s=0.25)
    assert found.passed
    assert count <= len(found.cases) <= 4 * count
    assert found.wanted == 40
    crew = Crew(monkeypatch, count, seconds=0.05)
    assert len(crew.judged(runs(40, 1), limit_s=0.0).cases) in range(1, count + 1)


def test_of_a_wide_check_that_is_cut_off_there_is_no_run_without_those_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crew = Crew(monkeypatch, 3)
    crew.slow = {0: 0.5}
    found = crew.judged(runs(40, 1), limit_s=0.25)
    assert [check.message for check in found.cases] == ["run 0", "run 1", "run 2"]
    assert len(crew.seeds) > 3


class Versions:
    """A candidate, the baseline and what was kept, each with how its runs end, by their seeds; all others pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *ends: dict[int, Status]) -> None:
        self.checks = [self._check(one) for one in ends]
        monkeypatch.setattr(crews, "check_case", self._check_case)

    def _check(self, ends: dict[int, Status]) -> Check:
        worker = Worker()
        worker.ends = ends  # type: ignore[attr-defined]

        @contextlib.contextmanager
        def start(*, count: int = 1) -> Iterator[list[WorkerHandle]]:
            yield [cast(WorkerHandle, worker)]

        return Check(CODE, Backend.CPU, start, quiet)

    def _check_case(self, worker: Any, code: object, run: Run, *_: object) -> CaseCheck:
        end = worker.ends.get(run.seed, Status.PASSED)
        return CaseCheck(case=run.case, hidden=run.hidden, values=run.values, status=end, message=f"run {run.seed}")

    def judged(self, planned: list[Run], own: bool = False) -> CorrectnessResult:
        candidate, *versions = self.checks
        deadline = time.monotonic() + 60
        return judged_fairly(lambda some: judged_widely(candidate, some, 60.0), planned, versions, deadline, own, True)


def drawn(count: int, visible: int = 1) -> list[Run]:
    """A run of each of so many cases, the first of which are visible; a run's seed is its number."""
    return [Run({"N": 17 + number}, number >= visible, number) for number in range(count)]


WRONG, DEAD = Status.WRONG_VALUES, Status.CRASHED


def test_a_visible_case_on_which_the_baseline_is_wrong_leaves_nothing_to_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = Versions(monkeypatch, {0: WRONG}, {0: WRONG})
    found = versions.judged(drawn(9))
    assert (found.status, found.baseline_wrong) == (Status.VOID, True)
    assert "N=17, a visible case: the baseline is wrong on it, too" in found.message
    assert versions.judged(drawn(9), own=True).status is WRONG, "the baseline's own check"
    crash = Versions(monkeypatch, {0: DEAD}, {0: DEAD}).judged(drawn(9))
    assert (crash.status, crash.baseline_wrong) == (Status.VOID, False), "it may be the machine's fault"


def test_versions_that_were_kept_and_fail_are_named_up_to_one_that_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {3: WRONG}
    found = Versions(monkeypatch, wrong, {}, wrong, wrong, {}, wrong).judged(drawn(9))
    assert (found.status, found.faulty) == (WRONG, 2)
    assert "the 2 versions kept last fail there, too" in found.message
