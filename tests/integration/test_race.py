"""Versions raced by their programs: the referee's side as it is, on a replayer whose driver is a stand-in."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.integration.test_program_benchmark import CASE, broken, taking, task_code
from tests.unit.programs.made import OUT, clear, fill, program
from tilewright.evaluation.pool import WorkerFailure
from tilewright.evaluation.results import Raced, Status
from tilewright.evaluation.seeds import Seeds
from tilewright.evaluation.statistics import Figures
from tilewright.programs.model import Program
from tilewright.referee.race import CUTS, ProgramRace, Rounds, halve, pooled, survivors
from tilewright.referee.replayer import Fault, Replayer
from tilewright.wire.messages import Round

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
WRONG = program([clear(width=256), fill(OUT, 20)])


@pytest.fixture
def track(replayer: Replayer, tmp_path: Path) -> ProgramRace:
    return ProgramRace(task_code(tmp_path / "task"), replayer, Seeds("secret"), lambda: None)


def raced(track: ProgramRace, *programs: Program, whole: bool = False) -> list[Raced]:
    found = track.case(CASE, dict(enumerate(programs)), whole)
    return [found[number] for number in range(len(programs))]


def test_the_fastest_is_found_and_what_is_far_behind_is_dropped_at_once(track: ProgramRace) -> None:
    original, fast, slower, far = raced(track, taking(40), taking(30), taking(36), taking(90))
    assert (original.speedup, original.low, original.high, original.dropped) == (1, 1, 1, False)
    assert fast.ms is not None
    assert original.ms is not None
    assert fast.ms < original.ms
    assert fast.low is not None
    assert fast.low > 1
    assert fast.rounds >= 8
    assert not fast.dropped
    assert slower.dropped
    assert 2 <= slower.rounds < fast.rounds
    assert (far.rounds, far.dropped, far.status) == (0, True, Status.PASSED)
    assert "times the best's time in its first calls" in far.message


def test_all_run_to_the_end_where_none_is_to_be_dropped(track: ProgramRace) -> None:
    found = raced(track, taking(40), taking(30), taking(36), taking(90), whole=True)
    assert [one.dropped for one in found] == [False] * 4
    assert min(one.rounds for one in found[1:]) >= 8
    assert [one.rounds for one in found[1:]] == [found[1].rounds] * 3


def test_a_wrong_arm_and_one_that_fails_end_alone(track: ProgramRace) -> None:
    found = raced(track, taking(40), WRONG, broken(taking(25)), taking(30))
    assert [one.status for one in found] == [Status.PASSED, Status.WRONG_VALUES, Status.CRASHED, Status.PASSED]
    assert found[1].message.startswith("N=256: output")
    assert "illegal-access" in found[2].message
    assert found[3].low is not None
    assert found[3].low > 1


def test_an_original_that_is_wrong_or_fails_ends_the_race(track: ProgramRace) -> None:
    for original, status in ((WRONG, Status.WRONG_VALUES), (broken(taking(30)), Status.CRASHED)):
        with pytest.raises(WorkerFailure) as failed:
            raced(track, original, taking(30))
        assert failed.value.status is status


def test_equal_programs_are_one_arm(track: ProgramRace, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[int] = []
    real = Replayer.load
    monkeypatch.setattr(Replayer, "load", lambda self, some, draws: (loaded.append(len(some)), real(self, some, draws)))
    found = raced(track, taking(40), taking(30), taking(40), taking(30))
    assert [one.same for one in found] == [None, None, 0, 1]
    assert found[3].ms == found[1].ms
    assert max(loaded) == 2


def test_a_program_with_other_outputs_is_no_arm(track: ProgramRace) -> None:
    other = taking(20)
    outputs = tuple(
        one.model_copy(update={"spec": one.spec.model_copy(update={"dtype": "int32"})}) for one in other.layout.outputs
    )
    other = Program(other.layout.model_copy(update={"outputs": outputs}), other.images, other.held)
    found = raced(track, taking(40), other, taking(30))
    assert [one.status for one in found] == [Status.PASSED, Status.WRONG_SHAPE, Status.PASSED]
    assert "it returns int32[256], and the original float32[256]" in found[1].message


def test_where_memory_is_short_there_are_groups_with_the_original_in_each(
    track: ProgramRace, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[list[Program]] = []

    def round_of(self: Replayer, *more: float) -> Round:
        if len(self._programs) > 3:
            raise Fault("out-of-memory", None, "it takes too much")
        groups.append(self._programs)
        return real(self, *more)

    real = Replayer.round
    monkeypatch.setattr(Replayer, "round", round_of)
    programs = [taking(us) for us in (40, 36, 35, 34, 30)]
    found = raced(track, *programs)
    assert all(group[0] is programs[0] for group in groups)
    assert {len(group) for group in groups} <= {2, 3}
    assert [one.status for one in found] == [Status.PASSED] * 5
    assert max(found, key=lambda one: one.speedup or 0) is found[4]
    assert found[4].rounds >= 8


def test_an_arm_that_fits_beside_nothing_is_not_replayed(track: ProgramRace, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Round:
        raise Fault("out-of-memory", None, "it takes too much")

    monkeypatch.setattr(Replayer, "round", full)
    found = raced(track, taking(40), taking(30), taking(31))
    assert [one.status for one in found] == [Status.PASSED, Status.NOT_REPLAYED, Status.NOT_REPLAYED]


def test_an_arm_that_fails_in_the_rounds_ends_alone(track: ProgramRace, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Replayer.round
    bad = taking(31)

    def round_of(self: Replayer, *more: float) -> Round:
        if bad in self._programs:
            raise Fault("hang", self._programs.index(bad), "the GPU was not done in time")
        return real(self, *more)

    monkeypatch.setattr(Replayer, "round", round_of)
    found = raced(track, taking(40), bad, taking(30))
    assert [one.status for one in found] == [Status.PASSED, Status.TIMEOUT, Status.PASSED]
    with pytest.raises(WorkerFailure) as failed:
        raced(track, bad, taking(30))
    assert failed.value.status is Status.TIMEOUT


def test_someone_looks_on(replayer: Replayer, tmp_path: Path) -> None:
    def look() -> None:
        raise WorkerFailure(Status.TIMEOUT, "used up", used_up=True)

    track = ProgramRace(task_code(tmp_path / "task"), replayer, Seeds("secret"), look)
    with pytest.raises(WorkerFailure, match="used up"):
        raced(track, taking(40), taking(30))


class Course:
    """Rounds of arms that take so many us, with a normal error of 1%."""

    def __init__(self, times: dict[int, float], seed: int, error: float = 0.01) -> None:
        self._times, self._source, self._error = times, random.Random(seed), error
        self.asked: list[tuple[list[int], int]] = []

    def run(self, arms: list[int], count: int) -> Rounds:
        self.asked.append((arms, count))

        def us(arm: int) -> float:
            return self._times[arm] * (1 + self._source.gauss(0, self._error))

        found: Rounds = {arm: [] for arm in arms}
        for _ in range(count):
            original = us(0)
            for arm in arms:
                pair = original, us(arm), 2.0
                found[arm].append(Figures(pair, pair))
        return found


def test_a_race_of_many_ends_with_the_best_and_few_calls() -> None:
    for seed in range(20):
        times = {0: 100.0} | {arm: 80.0 + arm for arm in range(1, 61)}
        course = Course(times, seed)
        rounds, stayed = halve([*range(1, 61)], course.run)
        best = max(stayed, key=lambda arm: pooled(rounds)[arm].mean)
        assert times[best] <= 1.02 * 81
        assert [count for _, count in course.asked] == [2, 2, 4, 8][: len(course.asked)]
        sizes = [len(arms) for arms, _ in course.asked]
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[1] <= 31
        assert sum(size * count for size, (_, count) in zip(sizes, course.asked, strict=True)) < 60 * CUTS[-1] / 3


def test_those_that_may_yet_be_the_best_stay() -> None:
    course = Course(dict.fromkeys(range(9), 100.0), 1)
    assert len(survivors(course.run([*range(1, 9)], 2))) > 4
    clear_cut = Course({0: 100.0, 1: 50.0, 2: 51.0, 3: 80.0, 4: 90.0, 5: 120.0}, 1, error=0.001)
    assert survivors(clear_cut.run([1, 2, 3, 4, 5], 2)) == [1, 2, 3]
    slower = Course({0: 100.0, 1: 120.0, 2: 130.0}, 1, error=0.001)
    assert survivors(slower.run([1, 2], 2)) == [], "none is faster than the original"


def test_an_arm_that_fails_leaves_its_race() -> None:
    course = Course({0: 100.0, 1: 90.0, 2: 80.0}, 1)

    def run(arms: list[int], count: int) -> Rounds:
        found = course.run(arms, count)
        return {arm: figures for arm, figures in found.items() if arm != 2}

    rounds, stayed = halve([1, 2], run)
    assert (set(rounds), stayed) == ({1}, {1})
    assert halve([], run) == ({}, set())
