"""Intervals hold what they promise, also when they are looked at more than once and by two clocks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from tilewright.evaluation.statistics import (
    ERROR_PROBABILITY,
    PAIR_LOOKS,
    TRIMMED_PAIRS,
    Interval,
    Pair,
    combined,
    decided,
    gain,
    interval,
    student_quantile,
)
from tilewright.rules import DEFAULT, Rules


def of_pairs(log_ratios: list[float]) -> Interval:
    return interval(log_ratios, ERROR_PROBABILITY / len(PAIR_LOOKS), TRIMMED_PAIRS)


def pairs_of(ratios: np.ndarray) -> list[Pair]:
    """Pairs whose log-ratios are these."""
    return [(1.0, math.exp(one)) for one in ratios]


def decided_at_a_look(sample: np.ndarray) -> Interval:
    """What the production loop ends with: it stops at the first look that decides."""
    for look in PAIR_LOOKS:
        found = gain(pairs_of(sample[:look]))
        if decided(found, DEFAULT):
            break
    return found


def test_cases_are_combined_by_their_weights() -> None:
    one, other = Interval(0.3, 0.2, 0.4, 0.02, 8, 7), Interval(0.1, 0.0, 0.2, 0.04, 12, 11)
    found = combined([one, other], weights=[3.0, 1.0])
    assert (found.mean, found.error) == (pytest.approx(0.25), pytest.approx(math.hypot(0.06, 0.04) / 4))
    assert combined([one, other], weights=[2.0, 2.0]) == combined([one, other])
    with pytest.raises(ValueError, match="zip"):
        combined([one, other], weights=[1.0])


def test_identical_arms_look_different_as_rarely_as_a_session_allows() -> None:
    source = np.random.default_rng(1)
    trials = 3000
    found = [decided_at_a_look(source.normal(0, 0.01, PAIR_LOOKS[-1])) for _ in range(trials)]
    wrong = sum(not one.low <= 0 <= one.high for one in found)
    assert wrong / trials <= ERROR_PROBABILITY + 3 * math.sqrt(ERROR_PROBABILITY / trials)


def test_a_gain_of_one_percent_is_found_through_half_a_percent_of_noise() -> None:
    source = np.random.default_rng(2)
    trials = 500
    ends = [decided_at_a_look(source.normal(0.01, 0.005, PAIR_LOOKS[-1])) for _ in range(trials)]
    assert sum(one.low > DEFAULT.resolution for one in ends) / trials >= 0.95


def test_intervals_follow_the_rules_of_the_session() -> None:
    sample = np.random.default_rng(5).normal(0.01, 0.005, 32)
    pairs = pairs_of(sample)
    assert gain(pairs, Rules(session_error=0.001)).half_width > gain(pairs).half_width
    assert gain(pairs, Rules(max_iterations=200)).half_width > gain(pairs, Rules(max_iterations=2)).half_width
    assert gain(pairs, Rules(max_iterations=2)) == gain(pairs)  # shared by 25 at least


def test_pairs_that_the_machine_disturbed_do_not_carry_the_interval() -> None:
    source = np.random.default_rng(4)
    sample = source.normal(0.01, 0.001, 32)
    calm = of_pairs(list(sample))
    sample[[3, 17]] = [1.5, -0.8]
    assert of_pairs(list(sample)).mean == pytest.approx(calm.mean, abs=5e-4)


@given(st.lists(st.floats(-0.5, 0.5), min_size=2, max_size=60))
def test_an_interval_holds_its_mean_and_turns_around_with_the_arms(values: list[float]) -> None:
    found = of_pairs(values)
    assert found.low <= found.mean <= found.high
    mirrored = of_pairs([-value for value in values])
    assert math.isclose(mirrored.low, -found.high, abs_tol=1e-9)
    ratio, low, high = found.ratio()
    assert low <= ratio <= high


@given(st.lists(st.floats(-0.2, 0.2), min_size=1, max_size=6))
def test_cases_combine_to_their_mean(means: list[float]) -> None:
    parts = [Interval(mean, mean - 0.01, mean + 0.01, 0.003, 24, 14) for mean in means]
    found = combined(parts)
    assert math.isclose(found.mean, sum(means) / len(means), abs_tol=1e-12)
    assert found.half_width <= 0.015


def test_too_little_data_is_refused() -> None:
    with pytest.raises(ValueError, match="at least two"):
        of_pairs([0.1])
    with pytest.raises(ValueError, match="nothing"):
        combined([])


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 12, 15, 31, 50, 127])
@pytest.mark.parametrize("error_probability", [0.5, 0.05, 0.01, 1e-3, 4e-4, 1e-5])
def test_quantiles_are_students(freedom: int, error_probability: float) -> None:
    expected = scipy.stats.t.ppf(1 - error_probability / 2, freedom)
    assert student_quantile(error_probability, freedom) == pytest.approx(expected, rel=1e-8)
