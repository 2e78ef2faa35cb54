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
    _Race,
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
    """Heats over arms with known times, the same or not in both cases. Those in `broken` fail whenever they run, or in
    one case alone. No more workers wait than may be `kept`."""

    def __init__(
        self,
        ms: Sequence[float | tuple[float, float]],
        broken: dict[Any, Status] | None = None,
        kept: int = 10,
        at_once: int = AT_ONCE,
    ) -> None:
        self.ms = [one if isinstance(one, tuple) else (one,) * len(CASES) for one in ms]
        self.broken = broken or {}
        self.at_once, self.kept = at_once, kept
        self.heats: list[list[int]] = []
        self.here: set[int] = set()
        self.waited: list[set[int]] = []
        self._source = random.Random(0)

    @contextlib.contextmanager
    def heat(self, numbers: list[int]) -> Iterator[Any]:
        assert len({*numbers}) == len(numbers) <= 1 + STRETCH * (self.at_once - 1)
        self.heats.append(numbers)
        self.waited.append(self.here - {*numbers})
        assert len(self.waited[-1]) <= self.kept
        self.here |= {*numbers}
        track = self

        class Running:
            seconds = "no time at all"

            def lanes(self, case: Any, seeds: Seeds, rounds: Sequence[int]) -> list[Lane]:
                place = CASES.index(case)
                for number in numbers:
                    if status := track.broken.get(number) or track.broken.get((number, place)):
                        raise WorkerFailure(status, "it broke", label=str(number))

                def timed(arm: int) -> float:
                    return track.ms[numbers[arm]][place] * math.exp(track._source.gauss(0, 0.002))

                return halve(len(numbers), timed, track._source, rounds)

        yield Running()

    def end(self, numbers: Iterable[int]) -> None:
        self.here -= {*numbers}

    def run(self, priors: Sequence[Prior] = ()) -> list[list[Raced]]:
        return race(CASES, len(self.ms), self, Seeds("00" * 32), lambda _: None, priors)


def last_heats(found: list[list[Raced]]) -> list[set[int]]:
    """Who was in the last heat of each case."""
    return [{number for number, one in enumerate(found) if not one[place].left} for place in range(len(CASES))]


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


def test_the_last_heat_has_the_best_of_all_heats() -> None:
    ms = [1.0] + [0.5 + number / 100 for number in range(11)] + [2.0 + number / 50 for number in range(20)]
    found = Track(ms).run()
    for last in last_heats(found):
        assert {1, 2, 3, 4, 5, 6} < last  # of the first heat, which has them all
        assert len(last) == 1 + 3 * 3
        assert last & {*range(12, 22)}  # but of each heat its first
        assert last & {*range(22, 32)}


def test_workers_wait_for_the_last_heat_as_far_as_there_is_room() -> None:
    ms = [1.0] + [2.0 - number / 50 for number in range(30)] + [0.5]
    track = Track(ms)
    found = track.run()
    first, second, last = {*track.heats[0]}, {*track.heats[2]}, {*track.heats[6]}
    assert not track.waited[0]
    assert last & first - {ORIGINAL} <= track.waited[2] < first
    assert last & (first | second) - {ORIGINAL} <= track.waited[4] < first | second
    assert not track.waited[6]
    assert last_heats(found) == [last, last]
    assert track.here == last
    crowded = Track(ms, kept=2)
    found = crowded.run()
    assert [len(waited) for waited in crowded.waited[:6:2]] == [0, 2, 2]
    assert max(range(32), key=lambda number: found[number][0].speedup or 0) == 31


def test_cases_have_winners_of_their_own() -> None:
    """The configs that are fast in one case are slow in the other, and heats are small."""
    ms: list[Any] = [(1.0, 1.0)] + [(0.4 + one / 60, 1.4 - one / 60) for one in range(60)]
    for at_once, kept in ((6, 1), (6, 4), (12, 8), (24, 23)):
        track = Track(ms, at_once=at_once, kept=kept)
        found = track.run()
        assert found[1][0].speedup == pytest.approx(2.5, rel=0.02)
        assert {1, 2} < last_heats(found)[0]
        assert {59, 60} < last_heats(found)[1]
        assert found[ORIGINAL][0].rounds == QUALIFYING[-1]  # its first heat's figures
        waiting = max(map(len, track.waited))
        assert waiting == kept or at_once == 24


def test_who_fails_in_one_case_takes_no_place_in_the_other() -> None:
    ms: list[Any] = [1.0] + [0.9 + one / 1000 for one in range(31)]
    for one in range(25, 32):
        ms[one] = 0.5
    track = Track(ms, {(one, 1): Status.WRONG_VALUES for one in range(25, 32)})
    found = track.run()
    for last in last_heats(found):
        right = {number for number in last if found[number][0].status is Status.PASSED}
        assert {1, 2, 3, 4} < right
        assert len(right) == 1 + 3 * 3


ORIGINALS = Prior(ms=2.0, settings={"TILE": "0", "WARPS": "1"})


def made_up(count: int) -> tuple[list[Prior], list[float]]:
    """The original and a space of two knobs, one of which the model knows nothing of: half of its configs take thrice
    as long."""
    knobs = [(tile, warps) for warps in (8, 4) for tile in range(count // 2)]
    priors = [Prior(ms=1.0 + tile / 50, settings={"TILE": str(tile), "WARPS": str(warps)}) for tile, warps in knobs]
    ms = [(1.0 + tile / 50) * (3.0 if warps == 8 else 1.0) for tile, warps in knobs]
    return [ORIGINALS, *priors], [2.0, *ms]


def test_what_is_raced_next_is_what_the_heats_before_speak_for() -> None:
    priors, ms = made_up(120)
    track = Track(ms)
    found = track.run(priors)
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
        times = float(one.message.removeprefix("expected at about ").split()[0])
        assert times == pytest.approx(ms[number], rel=0.35)
        assert one.message.endswith(f"times the best, by the model and by the {MOST_RACED} that were raced")


def test_what_is_raced_next_is_decided_by_all_cases() -> None:
    """In the first case the model is right, in the second eight warps are far slower."""
    priors, ms = made_up(240)
    track = Track([(one.ms or 0.0, ms[number] ** 3) for number, one in enumerate(priors)])
    track.run(priors)
    assert sum(number <= 60 for heat in track.heats[4:-2] for number in heat[1:]) == 0


def test_a_family_that_only_the_original_is_of_is_not_blamed_for_another() -> None:
    """All that the model puts first take thrice as long as it says; it is right of the others, as of the original."""
    bad = [Prior(ms=1.0 + one / 1000, settings={"KIND": "a", "TILE": str(one)}) for one in range(60)]
    good = [Prior(ms=1.4 + one / 1000, settings={"KIND": "b", "TILE": str(one)}) for one in range(60)]
    priors = [Prior(ms=1.5, settings={"KIND": "b", "TILE": "99"}), *bad, *good]
    track = Track([1.5] + [3 * (one.ms or 0.0) for one in bad] + [one.ms or 0.0 for one in good], at_once=24, kept=23)
    found = track.run(priors)
    assert {*track.heats[0][1:]} < {*range(1, 61)}
    assert {*track.heats[2][1:]} < {*range(61, 121)}
    assert all("about 2.2 times" in found[number][0].message for number in range(40, 61))


def test_others_take_the_place_of_a_family_that_fails() -> None:
    priors, ms = made_up(120)
    track = Track(ms, dict.fromkeys([*range(1, 61), (61, 0)], Status.CRASHED), at_once=24, kept=23)
    found = track.run(priors)
    assert sum(one[0].ms is not None for one in found[1:]) >= MOST_RACED - 12
    assert found[62][0].speedup == pytest.approx(2 / 1.02, rel=0.02)
    small = Track(ms, dict.fromkeys(range(1, 61), Status.CRASHED), at_once=6, kept=4)
    found = small.run(priors)
    assert {one for one in range(121) if found[one][0].status is Status.CRASHED} < {*small.heats[0]}
    assert sum(one[0].ms is not None for one in found[1:]) == MOST_RACED


def test_what_two_knobs_make_of_each_other_is_blamed_on_neither() -> None:
    """Large tiles fail with four warps alone, and with eight they are the best."""
    knobs = [(tile, warps) for tile in range(40) for warps in (4, 8)]
    priors = [
        Prior(ms=1.0 + tile / 100, settings={"TILE": str(tile // 8), "WARPS": str(warps)}) for tile, warps in knobs
    ]
    ms = [(one.ms or 0.0) * (0.5 if knob == (39, 8) else 1.0) for one, knob in zip(priors, knobs, strict=True)]
    fails = [number for number, (tile, warps) in enumerate(knobs, 1) if tile < 8 and warps == 4]
    found = Track([2.0, *ms], dict.fromkeys(fails, Status.CRASHED)).run([ORIGINALS, *priors])
    passed = [number for number in range(1, 81) if found[number][0].ms is not None]
    assert sum(knobs[number - 1][1] == 4 for number in passed) > 10
    assert sum(knobs[number - 1][0] < 8 for number in passed) == 8
    assert len(passed) >= MOST_RACED - 6


def test_a_value_with_which_all_failed_is_left_for_last_and_named() -> None:
    priors, ms = made_up(240)
    track = Track(ms, dict.fromkeys(range(1, 121), Status.CRASHED))
    found = track.run(priors)
    failed = [number for number in range(1, 121) if found[number][0].status is Status.CRASHED]
    assert 3 <= len(failed) <= AT_ONCE
    (words,) = {found[number][0].message for number in {*range(1, 121)}.difference(failed)}
    assert words == f"all {len(failed)} that were raced with WARPS=8 failed"


def causes(failed: list[dict[str, str]], passed: list[dict[str, str]], original: dict[str, str]) -> dict[str, int]:
    """What a race takes for the causes of failures, as text, with how many have each."""
    priors = [Prior(ms=1.0, settings=one) for one in (original, *failed, *passed)]
    running = _Race(CASES, len(priors), Track([]), Seeds("00" * 32), lambda _: None, priors)
    running._out = {*range(1, len(failed) + 1)}
    found = running._causes(dict.fromkeys(range(len(failed) + 1, len(priors)), 0.0))
    return {" ".join(f"{name}{value}" for name, value in sorted(cause)): count for cause, count in found.items()}


def test_as_few_causes_are_named_as_explain_the_failures() -> None:
    grid = [{"O": o, "S": s, "T": t} for o in "1234" for s in "123" for t in "pqr"]
    big = [one for one in grid if one["T"] == "r"]
    assert causes(big, [], grid[0]) == {"Tr": 12}  # and not O4, S3, with which nothing else has raced
    assert causes(big[:2], [], grid[0]) == {}
    assert causes(big, [], big[0]) == {"S2 Tr": 4, "S3 Tr": 4}  # of the rest no three are alike
    assert causes(big, [one for one in grid if one not in big], grid[0]) == {"Tr": 12}
    pairs = [one for one in grid if (one["O"], one["T"]) in (("4", "r"), ("3", "r"), ("4", "q"))]
    assert causes(pairs, [one for one in grid if one not in pairs], grid[0]) == {"O3 Tr": 3, "O4 Tq": 3, "O4 Tr": 3}


def test_few_configs_are_all_raced_whatever_the_model_says() -> None:
    priors, ms = made_up(MOST_RACED)
    assert all(one.ms is not None for by_case in Track(ms).run(priors) for one in by_case)
    without = Track(made_up(60)[1])
    assert all(one.ms is not None for by_case in without.run() for one in by_case)


def test_where_all_that_raced_failed_it_is_said() -> None:
    priors, ms = made_up(240)
    track = Track(ms, dict.fromkeys(range(1, 241), Status.CRASHED))
    found = track.run(priors)
    failed = sum(by_case[0].status is Status.CRASHED for by_case in found)
    assert MOST_RACED < failed <= 2 * math.ceil(MOST_RACED / (AT_ONCE - 1)) * (AT_ONCE - 1)
    (words,) = {by_case[0].message for by_case in found[1:]} - {"it broke"}
    assert words == "all that were raced failed, and seemed better"


def test_what_no_model_says_is_not_said() -> None:
    priors, ms = made_up(120)
    found = Track(ms).run([one.model_copy(update={"ms": None}) for one in priors])
    (words,) = {by_case[0].message.partition(", ")[2] for by_case in found if by_case[0].ms is None}
    assert words == f"by the {MOST_RACED} that were raced"


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
