"""What rounds say: how often two equal programs differ, and what a forged clock is worth."""

from __future__ import annotations

import math
import random

import pytest

from tilewright.evaluation.statistics import (
    LOOKS,
    Comparison,
    Figures,
    figures,
    interval,
    pairs_for,
    pause_for,
    trimmed_mean,
)
from tilewright.rules import DEFAULT, Rules
from tilewright.wire.messages import Round


def rounds(
    source: random.Random,
    count: int,
    gain: float,
    us: float = 45.0,
    noise: float = 0.002,
    wall_gain: float | None = None,
) -> list[Figures]:
    """Rounds of a program and of one that is faster by `gain`, with the noise of an H200: 0.2% by events, 0.4 us by
    the wall clock."""
    found = []
    for _ in range(count):
        one, other = us * (1 + source.gauss(0, noise)), us / (1 + gain) * (1 + source.gauss(0, noise))
        saved = one - other if wall_gain is None else wall_gain
        wall = us + 60 + source.gauss(0, 0.4)
        found.append(Figures((one, other, 2.0), (wall, wall - saved + source.gauss(0, 0.4), 60.0)))
    return found


def decided(source: random.Random, **how: float) -> Comparison:
    found = Comparison()
    for look in LOOKS:
        found.rounds += rounds(source, look - len(found.rounds), **how)  # type: ignore[arg-type]
        if found.decided:
            break
    return found


TOOK = ((4, 90), (45, 140), (440, 570), (400, 900), (6000, 6300), (1e5, 1e5))
"""Microseconds of calls by events and by the wall clock: the fourth has large tensors."""


def test_all_looks_share_one_error_probability() -> None:
    found = Comparison(rounds(random.Random(2), LOOKS[1], gain=0.01), error_probability=0.05)
    assert found.by_events == interval([one.log_ratio for one in found.rounds], 0.05 / len(LOOKS))
    assert found.wall_gain == interval([one.wall_gain for one in found.rounds], found.rules.wall_error / len(LOOKS))


def test_equal_programs_are_rarely_called_different() -> None:
    source = random.Random(1)
    trials = 1500
    found = [decided(source, gain=0.0, noise=0.003).speedup for _ in range(trials)]
    excluded = sum(not one.low <= 0 <= one.high for one in found)
    assert excluded <= 0.004 * trials * 2.5


def test_a_real_gain_is_found() -> None:
    source = random.Random(2)
    assert sum(decided(source, gain=0.01).verdict == "faster" for _ in range(200)) >= 195
    assert sum(decided(source, gain=-0.01).verdict == "slower" for _ in range(200)) >= 195


def test_where_the_clocks_disagree_the_smaller_gain_counts() -> None:
    """A start stamp that was moved by 20 us, of a program that is 10% slower; and one that is 5 us faster, not 13."""
    found = decided(random.Random(3), gain=0.40, wall_gain=-4.5)
    assert found.by_events.low > 0
    assert (found.verdict, found.bounded) == ("slower", True)
    found = decided(random.Random(3), gain=0.40, wall_gain=5.0)
    assert (found.verdict, found.bounded) == ("faster", True)
    assert found.speedup.mean == pytest.approx(math.log(1 + 5 / found.mean_us(1)), rel=0.1)
    assert found.speedup.low < found.speedup.mean < found.speedup.high < found.by_events.low


def test_a_larger_gain_by_the_wall_clock_is_none() -> None:
    for gain in (-0.2, 0.1):
        found = decided(random.Random(4), gain=gain, wall_gain=30.0)
        assert not found.bounded
        assert found.speedup == found.by_events


def test_what_the_wall_clock_cannot_resolve_is_not_held_against_a_gain() -> None:
    found = decided(random.Random(5), gain=0.03, us=5.0, noise=0.003, wall_gain=0.0)
    assert found.mean_us(0) - found.mean_us(1) < DEFAULT.wall_resolution_us
    assert (found.verdict, found.bounded) == ("faster", False)


def test_the_wall_clock_rarely_lowers_a_true_gain() -> None:
    source = random.Random(8)
    assert sum(decided(source, gain=0.03).bounded for _ in range(300)) <= 3


def test_a_version_that_is_slow_now_and_then_does_not_silence_the_wall_clock() -> None:
    """Slower by 4.5 us and by 100 us in some rounds, its events forged to a gain of 13 us: noise says nothing."""
    source = random.Random(6)
    for _ in range(100):
        found = Comparison()
        for one in rounds(source, LOOKS[-1], gain=0.4, wall_gain=-4.5):
            late = 100.0 * (source.random() < 0.4)
            found.rounds.append(Figures(one.events, (one.wall[0], one.wall[1] + late, one.wall[2])))
        assert found.bounded
        assert found.verdict != "faster"


def test_a_difference_below_the_floor_is_inconclusive() -> None:
    slower = 100 * (1 + DEFAULT.floor / 2)
    rows = [Figures((slower, 100 + n / 1000, 2.0), (200.0, 200.0 - n / 10, 100.0)) for n in range(2)] * 6
    found = Comparison(rows)
    assert found.speedup.low > 0
    assert (found.verdict, found.decided) == ("inconclusive", True)
    assert Comparison(rows, rules=Rules(floor=0.0005)).verdict == "inconclusive"  # just under half of the floor
    nearly = [Figures((100 * (1 + 0.8 * DEFAULT.floor), *one.events[1:]), one.wall) for one in rows]
    assert (Comparison(nearly).verdict, Comparison(nearly, rules=Rules(floor=0.0005)).verdict) == (
        "inconclusive",
        "faster",
    )


def test_a_comparison_ends_once_no_gain_that_matters_is_left() -> None:
    equal = [decided(random.Random(seed), gain=0.0, noise=0.001) for seed in range(50)]
    assert sum(len(one.rounds) == LOOKS[0] for one in equal) >= 45


def test_an_interval_is_students() -> None:
    found = interval([1.0, 2.0, 3.0, 4.0], 0.05)
    assert math.isclose(found.mean, 2.5)
    assert math.isclose(found.half_width, 3.182446 * 0.6454972, rel_tol=1e-5)
    with pytest.raises(ValueError, match="at least two"):
        interval([1.0], 0.05)


def test_a_round_is_read() -> None:
    calls = [[float(n) for n in range(20)], [5.0] * 20, [2.0] * 20]
    found = figures(Round(events=calls, wall=calls, mhz=calls))
    assert found.events == found.mhz == (9.5, 5.0, 2.0)
    assert trimmed_mean([1, 2, 1000, 1, 2, 1, 2, 1, 2, -5]) == 1.5
    assert trimmed_mean([1, 2, 1000, 1, -5]) == 4 / 3
    assert trimmed_mean([1, 2, 3, 10]) == 4
    for empty in ([[], [1.0], [1.0]], [[1.0], [0.0], [1.0]]):
        with pytest.raises(ValueError, match=r"without calls|took no time"):
            figures(Round(events=empty, wall=calls, mhz=calls))


def test_long_calls_are_fewer() -> None:
    found = [pairs_for(Figures((us, us / 2, 3.0), (wall, wall / 2, 90.0))) for us, wall in TOOK]
    assert found == [40, 40, 10, 10, 6, 6]
    assert [pause_for(us) for us in (4, 100, 101, 400, 401, 1e5)] == [0, 0, 0.003, 0.003, 0.01, 0.01]
