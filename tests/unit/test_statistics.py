"""Intervals hold what they promise, also when they are looked at more than once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.evaluation.statistics import LOOKS, Interval, combined, interval, is_decided


def decided_at_a_look(sample: np.ndarray) -> Interval:
    """What the production loop ends with: it stops at the first look that decides."""
    for look in LOOKS:
        found = interval(list(sample[:look]))
        if is_decided(found):
            return found
    return found


def test_identical_arms_look_different_in_at_most_one_percent_of_runs() -> None:
    source = np.random.default_rng(1)
    trials = 3000
    wrong = sum(decided_at_a_look(source.normal(0, 0.01, LOOKS[-1])).excludes_zero for _ in range(trials))
    assert wrong / trials <= 0.013  # 1% and three standard errors of this simulation


def test_a_gain_of_one_percent_is_found_through_half_a_percent_of_noise() -> None:
    source = np.random.default_rng(2)
    trials = 500
    found = sum(decided_at_a_look(source.normal(0.01, 0.005, LOOKS[-1])).low > 0 for _ in range(trials))
    assert found / trials >= 0.95


@given(st.lists(st.floats(-0.5, 0.5), min_size=2, max_size=60))
def test_an_interval_holds_its_mean_and_turns_around_with_the_arms(values: list[float]) -> None:
    found = interval(values)
    assert found.low <= found.mean <= found.high
    mirrored = interval([-value for value in values])
    assert math.isclose(mirrored.low, -found.high, abs_tol=1e-9)
    ratio, low, high = found.ratio()
    assert low <= ratio <= high


@given(st.lists(st.floats(-0.2, 0.2), min_size=1, max_size=6))
def test_cases_combine_to_their_mean(means: list[float]) -> None:
    parts = [Interval(mean, mean - 0.01, mean + 0.01, 0.003, 24) for mean in means]
    found = combined(parts)
    assert math.isclose(found.mean, sum(means) / len(means), abs_tol=1e-12)
    assert found.half_width <= 0.01 + 1e-9


def test_too_little_data_is_refused() -> None:
    with pytest.raises(ValueError, match="at least two"):
        interval([0.1])
    with pytest.raises(ValueError, match="nothing"):
        combined([])
