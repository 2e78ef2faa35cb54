"""Intervals hold what they promise, also when they are looked at more than once and by two clocks."""

from __future__ import annotations

import importlib.util
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from tilewright.evaluation.statistics import (
    ERROR_PROBABILITY,
    LOOKS,
    Evidence,
    Interval,
    Pair,
    combined,
    contradicts,
    interval,
    settled_apart,
    speedup_apart,
    student_quantile,
)
from tilewright.rules import DEFAULT, Rules

ROOT = Path(__file__).parents[2]


def evidence_of(ratios: np.ndarray, outer: np.ndarray | None = None) -> Evidence:
    """Pairs whose log-ratios are these, by device events and by the outer clock."""
    outer = ratios if outer is None else outer
    return Evidence([Pair(1.0, math.exp(one), 2.0, 2 * math.exp(two)) for one, two in zip(ratios, outer, strict=True)])


def decided_at_a_look(sample: np.ndarray, only: bool = False) -> Interval:
    """What the production loop ends with: it stops at the first look that decides."""
    for look in LOOKS:
        found = evidence_of(sample[:look])
        if found.is_decided(only):
            break
    return found.device


def test_identical_arms_look_different_as_rarely_as_a_session_allows() -> None:
    source = np.random.default_rng(1)
    trials = 3000
    wrong = sum(decided_at_a_look(source.normal(0, 0.01, LOOKS[-1])).excludes_zero for _ in range(trials))
    assert wrong / trials <= ERROR_PROBABILITY + 3 * math.sqrt(ERROR_PROBABILITY / trials)


def test_a_gain_of_one_percent_is_found_through_half_a_percent_of_noise() -> None:
    source = np.random.default_rng(2)
    trials = 500
    ends = [decided_at_a_look(source.normal(0.01, 0.005, LOOKS[-1])) for _ in range(trials)]
    assert sum(one.low > DEFAULT.resolution for one in ends) / trials >= 0.95


def test_intervals_follow_the_rules_of_the_session() -> None:
    sample = np.random.default_rng(5).normal(0.01, 0.005, 32)
    pairs = evidence_of(sample).pairs
    wide = Evidence(pairs, Rules(session_error=0.001, wall_error=0.001))
    assert wide.device.half_width > evidence_of(sample).device.half_width
    assert wide.outer.half_width > evidence_of(sample).outer.half_width
    shared = Evidence(pairs, Rules(max_iterations=200)).device
    assert shared.half_width > Evidence(pairs, Rules(max_iterations=2)).device.half_width
    assert Evidence(pairs, Rules(max_iterations=2)).device == evidence_of(sample).device  # shared by 25 at least


def test_a_lone_case_without_a_gain_is_closed_sooner_and_a_gain_is_found_as_often() -> None:
    def ends(gain: float, only: bool) -> list[Interval]:
        source = np.random.default_rng(7)
        return [decided_at_a_look(source.normal(gain, 0.004, LOOKS[-1]), only) for _ in range(300)]

    slow, quick = ends(0.0, only=False), ends(0.0, only=True)
    assert sum(one.samples for one in quick) < 0.6 * sum(one.samples for one in slow)
    assert not any(one.low > DEFAULT.resolution for one in quick)
    for gain in (0.005, 0.01):
        kept = [sum(one.low > DEFAULT.resolution for one in ends(gain, only)) for only in (False, True)]
        assert abs(kept[1] - kept[0]) <= 3
    loss = evidence_of(np.random.default_rng(8).normal(-0.02, 0.03, 8))
    assert not loss.is_decided(only=True)  # how much is lost is not known yet


def test_a_gain_that_only_the_device_events_show_stays_open() -> None:
    source = np.random.default_rng(3)
    claimed, passed = source.normal(0.2, 0.002, LOOKS[-1]), source.normal(0.0, 0.01, LOOKS[-1])
    assert not any(evidence_of(claimed[:look], passed[:look]).is_decided() for look in LOOKS)
    assert evidence_of(claimed[: LOOKS[0]]).is_decided()


def test_pairs_that_the_machine_disturbed_do_not_carry_the_interval() -> None:
    source = np.random.default_rng(4)
    sample = source.normal(0.01, 0.001, 32)
    calm = interval(list(sample))
    sample[[3, 17]] = [1.5, -0.8]
    assert interval(list(sample)).mean == pytest.approx(calm.mean, abs=5e-4)


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
    assert found.half_width <= 0.015


@pytest.mark.parametrize(
    ("speedup", "incumbents", "borne_out"),
    [
        (1.10, [1.09], True),
        (1.10, [1.20, 1.10, 1.11], True),  # one that gains far more says as little as one that gains nothing
        (1.10, [1.20, 1.19, 1.21], False),
        (1.10, [0.90, 1.12, 1.10], True),
        (1.10, [0.90, 1.12, 1.30], False),
        (1.10, [1.04, 1.04, 1.05], False),
        (1.01, [1.01, 1.01, 1.003], True),  # of a small gain one measurement says nothing, and three say what most are
        (1.01, [1.01, 1.0, 1.0, 1.01, 1.01], True),
        (1.01, [1.01, 1.0, 1.0, 1.0, 1.01, 1.01, 1.01, 1.01, 1.0], True),
        (1.01, [1.01, 1.0, 1.0, 1.0, 1.01, 1.01, 1.0, 1.01, 1.0], False),
        (1.01, [1.01, 1.30, 1.01], True),  # one process that was disturbed
        (1.01, [0.70, 1.0, 1.01, 1.01, 1.01], True),
        (1.01, [1.04, 1.04, 1.01, 1.04, 1.01, 1.01, 1.01, 1.01, 1.01], False),  # three is a kernel that chooses
        (1.01, [1.04] * 9, False),
        (1.039, [1.03, 1.03, 1.03], True),
        (1.041, [1.03], True),
        (1.004, [1.0] * 9, False),
    ],
)
def test_a_gain_has_to_be_there_apart(speedup: float, incumbents: list[float], borne_out: bool) -> None:
    waiting = list(incumbents)
    found = settled_apart(speedup, lambda: (1.0, waiting.pop(0)))
    assert (found, waiting) == ([(1.0, one) for one in incumbents], [])
    assert contradicts(speedup, found) == (not borne_out)


def test_processes_apart_count_by_their_mean_but_for_those_that_were_disturbed() -> None:
    assert speedup_apart([(1.0, 1.01), (1.01, 1.02), (1.3, 1.01)]) == pytest.approx(
        (1.01 * 1.02 * 1.01) ** (1 / 3) / 1.01**0.5
    )
    assert contradicts(1.10, [(1.0, math.nan)])


@pytest.mark.parametrize("slower", [1.05, 1.2, 2.0])
@pytest.mark.parametrize("gain", [1.003, 1.005, 1.01, 1.02])
def test_who_tosses_a_coin_in_each_process_wins_nothing(slower: float, gain: float) -> None:
    source = random.Random(4)

    def measure() -> tuple[float, float]:
        return source.choice((1.0, slower)), source.choice((1.0, slower))

    runs = (settled_apart(gain, measure) for _ in range(2000))
    assert sum(not contradicts(gain, run) for run in runs) <= 20


@pytest.mark.parametrize("gain", [1.019, 1.021, 1.03, 1.039, 1.041, 1.06])
def test_no_feigned_gain_is_large_enough_to_pass_by_where_memory_lies(gain: float) -> None:
    source = random.Random(5)

    def measure() -> tuple[float, float]:
        return source.choice((1.0, 1.01)), source.choice((1.0, 1.01))

    runs = (settled_apart(gain, measure) for _ in range(2000))
    assert sum(not contradicts(gain, run) for run in runs) <= 20


def test_where_every_second_process_is_slower_a_small_gain_is_seen_and_none_is_not() -> None:
    source = random.Random(3)

    def kept(true: float) -> float:
        def measure() -> tuple[float, float]:
            return source.choice((1.0, 1.01)) / true, source.choice((1.0, 1.01))

        runs = (settled_apart(1.01, measure) for _ in range(4000))
        return sum(not contradicts(1.01, run) for run in runs) / 4000

    assert kept(1.01) > 0.98
    assert kept(1.0) < 0.12


def test_too_little_data_is_refused() -> None:
    with pytest.raises(ValueError, match="at least two"):
        interval([0.1])
    with pytest.raises(ValueError, match="nothing"):
        combined([])


def benchmark_script() -> Any:
    spec = importlib.util.spec_from_file_location("benchmarks_statistics", ROOT / "benchmarks" / "statistics.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "gain", "least", "most"),
    [
        *((name, 0.0, 0.0, 0.01) for name in ("5 us", "10 us", "50 us", "100 us", "500 us", "5 ms")),
        ("10 us", 0.03, 0.95, 1.0),
        *((name, 0.01, 0.93, 1.0) for name in ("100 us", "500 us", "5 ms")),
    ],
)
def test_recorded_pairs_through_the_production_decision(name: str, gain: float, least: float, most: float) -> None:
    script = benchmark_script()
    recorded = np.load(ROOT / "references" / "evidence" / "statistics.npz")
    live = json.loads((ROOT / "references" / "evidence" / "statistics-live.json").read_text())
    source, alone = random.Random(5), live["kernels"][name]["alone_ms"]
    pair_s = float(recorded[script.spent_by(name)].mean())
    kept = sum(script.trial(recorded[name], source, gain, alone, pair_s)[0] for _ in range(100)) / 100
    assert least <= kept <= most


@pytest.mark.parametrize("name", ["10 us", "500 us"])
def test_what_becomes_of_gains_apart_is_as_recorded(name: str) -> None:
    live = json.loads((ROOT / "references" / "evidence" / "statistics-live.json").read_text())["kernels"][name]
    assert benchmark_script().shares_apart(name, live["alone_ms"]) == live["apart"]


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 12, 15, 31, 50, 127])
@pytest.mark.parametrize("error_probability", [0.5, 0.05, 0.01, 1e-3, 4e-4, 1e-5])
def test_quantiles_are_students(freedom: int, error_probability: float) -> None:
    expected = scipy.stats.t.ppf(1 - error_probability / 2, freedom)
    assert student_quantile(error_probability, freedom) == pytest.approx(expected, rel=1e-8)
