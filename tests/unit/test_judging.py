"""A check beside other work: what that may have brought about is judged again alone."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from threading import Event

import pytest

from tilewright.evaluation.judging import DISTURBED, judged_undisturbed
from tilewright.evaluation.pool import WorkerFailure
from tilewright.evaluation.results import CorrectnessResult, Status


class Check:
    """Ends so, one time after the other; notes whether other work went on."""

    def __init__(self, *answers: Status, raises: bool = False) -> None:
        self.answers = [*answers]
        self.raises = raises
        self.beside: list[bool] = []
        self.stop: Event | None = None
        self.goes_on = False

    def judge(self) -> CorrectnessResult:
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
    check = Check(status, Status.PASSED, raises=raises)
    assert judged_undisturbed(check.judge, check.aside()).passed
    assert check.beside == [True, False]
    check = Check(status, status, raises=raises)
    if raises:
        with pytest.raises(WorkerFailure):
            judged_undisturbed(check.judge, check.aside())
    else:
        assert judged_undisturbed(check.judge, check.aside()).status is status
    assert check.beside == [True, False]


@pytest.mark.parametrize("raises", [False, True])
def test_any_other_failure_stands_and_ends_the_other_work(raises: bool) -> None:
    check = Check(Status.WRONG_VALUES, raises=raises)
    with pytest.raises(WorkerFailure) if raises else contextlib.nullcontext():
        assert judged_undisturbed(check.judge, check.aside()).status is Status.WRONG_VALUES
        assert check.stop is not None
        assert check.stop.is_set()
    assert check.beside == [True]


def test_an_error_of_the_referee_beside_other_work_is_tried_again_alone() -> None:
    """The reference takes memory, too."""
    check, errors = Check(Status.PASSED), [RuntimeError("out of memory")]

    def judge() -> CorrectnessResult:
        if errors:
            check.beside.append(check.goes_on)
            raise errors.pop()
        return check.judge()

    assert judged_undisturbed(judge, check.aside()).passed
    assert check.beside == [True, False]
    errors.append(RuntimeError("out of memory"))
    with pytest.raises(RuntimeError, match="out of memory"):
        judged_undisturbed(judge, contextlib.nullcontext())


@pytest.mark.parametrize("raises", [False, True])
def test_without_time_left_a_failure_stands(raises: bool) -> None:
    check = Check(Status.TIMEOUT, raises=raises)
    with pytest.raises(WorkerFailure) if raises else contextlib.nullcontext():
        assert judged_undisturbed(check.judge, check.aside(), time.monotonic() - 1).status is Status.TIMEOUT
    assert check.beside == [True]


def test_what_passes_lets_the_other_work_go_on() -> None:
    check = Check(Status.PASSED)
    assert judged_undisturbed(check.judge, check.aside()).passed
    assert check.stop is not None
    assert not check.stop.is_set()


def test_without_other_work_a_failure_stands() -> None:
    for raises in (False, True):
        check = Check(Status.CRASHED, raises=raises)
        with pytest.raises(WorkerFailure) if raises else contextlib.nullcontext():
            assert judged_undisturbed(check.judge, contextlib.nullcontext()).status is Status.CRASHED
        assert check.beside == [False]
