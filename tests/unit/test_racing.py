"""How configs are raced in heats, with a stand-in for the device: who goes on, who is out, and what is raised."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

from tilewright.evaluation.pool import WorkerFailure
from tilewright.evaluation.racing import (
    ORIGINAL,
    QUALIFYING,
    STRETCH,
    Lane,
    halve,
    heat_size,
    race,
    started_ahead,
)
from tilewright.evaluation.results import Raced, Status
from tilewright.evaluation.seeds import Seeds

AT_ONCE = 12
CASES = [{"N": 1}, {"N": 2}]


class Track:
    """Heats over arms with known times; those in `broken` fail whenever they run."""

    def __init__(self, ms: list[float], broken: dict[int, Status] | None = None, kept: int = 10) -> None:
        self.ms = ms
        self.broken = broken or {}
        self.at_once, self.kept = AT_ONCE, kept
        self.heats: list[list[int]] = []
        self.here: set[int] = set()
        self.waited: list[set[int]] = []
        self._source = random.Random(0)

    @contextlib.contextmanager
    def heat(self, numbers: list[int]) -> Iterator[Any]:
        self.heats.append(numbers)
        self.waited.append(self.here - {*numbers})
        self.here |= {*numbers}
        track = self

        class Running:
            seconds = "no time at all"

            def lanes(self, case: Any, seeds: Seeds, rounds: Sequence[int]) -> list[Lane]:
                for number in numbers:
                    if number in track.broken:
                        raise WorkerFailure(track.broken[number], "it broke", label=str(number))

                def timed(arm: int) -> float:
                    return track.ms[numbers[arm]] * math.exp(track._source.gauss(0, 0.002))

                return halve(len(numbers), timed, track._source, rounds)

        yield Running()

    def end(self, numbers: Iterable[int]) -> None:
        self.here -= {*numbers}

    def run(self) -> list[list[Raced]]:
        return race(CASES, len(self.ms), self, Seeds("00" * 32), lambda _: None)


def test_a_large_device_holds_more_configs_at_once() -> None:
    assert [heat_size(gib * 2**30) for gib in (8, 24, 80, 141)] == [6, 6, 20, 24]


def test_the_next_heat_is_started_ahead_where_memory_allows() -> None:
    assert [started_ahead(217, gib * 2**30) for gib in (8, 24, 80, 141)] == [7, 10, 33, 47]
    assert started_ahead(17, 141 * 2**30) == 17


def test_many_configs_race_in_heats_and_the_first_of_each_once_more() -> None:
    track = Track([1.0] + [2.0 - number / 50 for number in range(30)] + [0.5])
    found = track.run()
    assert all(len(numbers) <= AT_ONCE and numbers[0] == ORIGINAL for numbers in track.heats)
    assert len(track.heats) == 2 * (math.ceil(31 / (AT_ONCE - 1)) + 1)
    assert 31 in track.heats[3]
    assert len(track.heats[3]) == 1 + 3 * 3
    assert found[31][0].rounds > QUALIFYING[-1] > QUALIFYING[0] == found[1][0].rounds
    assert {number for heat in track.heats[:3] for number in heat} == set(range(32))
    best = max(range(32), key=lambda number: found[number][0].speedup or 0)
    assert best == 31
    assert found[31][1].speedup == pytest.approx(2.0, rel=0.01)
    assert all(raced.ms is not None and raced.low is not None for by_case in found for raced in by_case)


def test_workers_wait_for_the_last_heat_as_far_as_there_is_room() -> None:
    ms = [1.0] + [2.0 - number / 50 for number in range(30)] + [0.5]
    track = Track(ms)
    found = track.run()
    first, second, _, last = track.heats[:4]
    assert not track.waited[0]
    assert track.waited[1] == {*last} & {*first} - {ORIGINAL}
    assert track.waited[2] == {*last} & {*first, *second} - {ORIGINAL}
    assert not track.waited[3]
    assert {number for number in range(32) if not found[number][0].left} == {*last}
    crowded = Track(ms, kept=2)
    found = crowded.run()
    assert [len(waited) for waited in crowded.waited[:4]] == [0, 2, 2, 0]
    assert max(range(32), key=lambda number: found[number][0].speedup or 0) == 31


def test_a_few_more_than_fit_race_at_once() -> None:
    for count, heats in ((AT_ONCE - 1, 1), (math.floor(STRETCH * (AT_ONCE - 1)), 1), (AT_ONCE + 2, 3)):
        track = Track([1.0] * (count + 1))
        track.run()
        assert len(track.heats) == 2 * heats, count
    assert [len(numbers) for numbers in track.heats[:2]] == [1 + 7, 1 + 7]


def test_a_config_that_fails_costs_only_itself() -> None:
    track = Track([1.0, 0.9, 0.8, 0.7], {2: Status.CRASHED, 3: Status.WRONG_VALUES})
    found = track.run()
    assert [raced.status for raced in found[2]] == [Status.CRASHED] * 2
    assert found[3][0].status is Status.WRONG_VALUES
    assert found[1][0].speedup == pytest.approx(1 / 0.9, rel=0.01)
    assert track.heats == [[0, 1, 2, 3], [0, 1, 3], [0, 1], [0, 1]]
    assert track.here == {0, 1}


@pytest.mark.parametrize("status", [Status.CRASHED, Status.VOID])
def test_what_is_not_a_configs_fault_is_raised(status: Status) -> None:
    number = ORIGINAL if status is Status.CRASHED else 1
    with pytest.raises(WorkerFailure):
        Track([1.0, 2.0], {number: status}).run()


def test_the_original_alone_is_no_race() -> None:
    track = Track([1.0])
    assert track.run()[0][0].ms is None
    assert not track.heats
