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
    MOST_RACED,
    ORIGINAL,
    QUALIFYING,
    STRETCH,
    Lane,
    halve,
    heat_size,
    race,
    started_ahead,
)
from tilewright.evaluation.results import Prior, Raced, Status
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

    def run(self, priors: Sequence[Prior] = ()) -> list[list[Raced]]:
        return race(CASES, len(self.ms), self, Seeds("00" * 32), lambda _: None, priors)


def test_a_large_device_holds_more_configs_at_once() -> None:
    assert [heat_size(gib * 2**30) for gib in (8, 24, 80, 141)] == [6, 6, 20, 24]


def test_the_next_heat_is_started_ahead_where_memory_allows() -> None:
    assert [started_ahead(217, gib * 2**30) for gib in (8, 24, 80, 141)] == [7, 10, 33, 47]
    assert started_ahead(17, 141 * 2**30) == 17


def test_many_configs_race_in_heats_and_the_first_of_all_once_more() -> None:
    track = Track([1.0] + [2.0 - number / 50 for number in range(30)] + [0.5])
    found = track.run()
    assert all(len(numbers) <= AT_ONCE and numbers[0] == ORIGINAL for numbers in track.heats)
    assert len(track.heats) == len(CASES) * (math.ceil(31 / (AT_ONCE - 1)) + 1)
    qualifying, last = track.heats[:6], track.heats[6:]
    assert qualifying[0::2] == qualifying[1::2]  # a heat of both cases, then the next
    assert {number for heat in qualifying for number in heat} == set(range(32))
    assert [len(heat) for heat in last] == [1 + 3 * 3] * 2
    for heat in last:
        assert 31 in heat
        assert {25, 26, 27, 28, 29, 30} < {*heat}  # of the last, which are the fastest
        assert all({*heat} & {*part} > {ORIGINAL} for part in qualifying)  # and some of each
    assert found[31][0].rounds > QUALIFYING[-1] > QUALIFYING[0] == found[1][0].rounds
    best = max(range(32), key=lambda number: found[number][0].speedup or 0)
    assert best == 31
    assert found[31][1].speedup == pytest.approx(2.0, rel=0.01)
    assert all(raced.ms is not None and raced.low is not None for by_case in found for raced in by_case)


def test_workers_wait_for_the_last_heat_as_far_as_there_is_room() -> None:
    ms = [1.0] + [2.0 - number / 50 for number in range(30)] + [0.5]
    track = Track(ms)
    found = track.run()
    first, second, last = {*track.heats[0]}, {*track.heats[2]}, {*track.heats[6]}
    assert not track.waited[0]
    assert last & first - {ORIGINAL} <= track.waited[2] < first
    assert last & (first | second) - {ORIGINAL} <= track.waited[4] < first | second
    assert not track.waited[6]
    assert {number for number in range(32) if not found[number][0].left} == last
    assert track.here == {ORIGINAL}
    crowded = Track(ms, kept=2)
    found = crowded.run()
    assert [len(waited) for waited in crowded.waited[:6:2]] == [0, 2, 2]
    assert max(range(32), key=lambda number: found[number][0].speedup or 0) == 31


def made_up(count: int) -> tuple[list[Prior], list[float]]:
    """A space of two knobs, one of which the model knows nothing of: half of its configs take thrice as long."""
    knobs = [(tile, warps) for warps in (8, 4) for tile in range(count // 2)]
    priors = [Prior(ms=1.0 + tile / 50, settings={"TILE": str(tile), "WARPS": str(warps)}) for tile, warps in knobs]
    return priors, [(1.0 + tile / 50) * (3.0 if warps == 8 else 1.0) for tile, warps in knobs]


def test_what_is_raced_next_is_what_the_heats_before_speak_for() -> None:
    priors, ms = made_up(120)
    track = Track([2.0, *ms], kept=10)
    found = track.run([Prior(ms=9.0, settings={"TILE": "0", "WARPS": "1"}), *priors])
    seen = {number for number in range(1, 121) if found[number][0].ms is not None}
    assert len(seen) == MOST_RACED
    assert max(range(121), key=lambda number: found[number][0].speedup or 0) == 61
    slow = [sum(number <= 60 for number in heat[1:]) for heat in track.heats[: len(track.heats) - 2 : 2]]
    assert slow[0] >= 5
    assert sum(slow[2:]) == 0  # by then it is known that eight warps are slow
    for number in {*range(1, 121)} - seen:
        (one, other) = found[number]
        assert one == other
        assert (one.status, one.left, one.ms) == (Status.PASSED, True, None)
        times = float(one.message.removeprefix("expected at ").split()[0])
        assert times == pytest.approx(ms[number - 1], rel=0.35)
        assert one.message.endswith(f"times the best, by the model and by the {MOST_RACED} that were raced")


def test_few_configs_are_all_raced_whatever_the_model_says() -> None:
    priors, ms = made_up(30)
    track = Track([2.0, *ms])
    found = track.run([Prior(ms=9.0, settings={"TILE": "0", "WARPS": "1"}), *priors])
    assert all(one.ms is not None for by_case in found for one in by_case)
    without = Track([2.0, *made_up(60)[1]])
    assert all(one.ms is not None for by_case in without.run() for one in by_case)


def test_where_all_that_raced_failed_it_is_said() -> None:
    priors, ms = made_up(80)
    track = Track([2.0, *ms], dict.fromkeys(range(1, 81), Status.CRASHED))
    found = track.run([Prior(ms=9.0, settings={"TILE": "0", "WARPS": "1"}), *priors])
    assert sum(by_case[0].status is Status.CRASHED for by_case in found) == MOST_RACED
    (words,) = {by_case[0].message for by_case in found[1:]} - {"it broke"}
    assert words == f"the {MOST_RACED} that were raced failed, and seemed better"


def test_a_few_more_than_fit_race_at_once() -> None:
    for count, heats in ((AT_ONCE - 1, 1), (math.floor(STRETCH * (AT_ONCE - 1)), 1), (AT_ONCE + 2, 3)):
        track = Track([1.0] * (count + 1))
        track.run()
        assert len(track.heats) == 2 * heats, count
    assert [len(numbers) for numbers in track.heats[:4]] == [1 + 7] * 4


def test_a_config_that_fails_costs_only_itself() -> None:
    track = Track([1.0, 0.9, 0.8, 0.7], {2: Status.CRASHED, 3: Status.WRONG_VALUES})
    found = track.run()
    assert [raced.status for raced in found[2]] == [Status.CRASHED] * 2
    assert found[3][0].status is Status.WRONG_VALUES
    assert found[1][0].speedup == pytest.approx(1 / 0.9, rel=0.01)
    assert track.heats == [[0, 1, 2, 3], [0, 1, 3], [0, 1], [0, 1]]
    assert track.here == {0}


@pytest.mark.parametrize("status", [Status.CRASHED, Status.VOID])
def test_what_is_not_a_configs_fault_is_raised(status: Status) -> None:
    number = ORIGINAL if status is Status.CRASHED else 1
    with pytest.raises(WorkerFailure):
        Track([1.0, 2.0], {number: status}).run()


def test_the_original_alone_is_no_race() -> None:
    track = Track([1.0])
    assert track.run()[0][0].ms is None
    assert not track.heats
