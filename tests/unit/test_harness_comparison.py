"""Deciding by a repository's own figures: identical arms, real gains, cases that share their run's luck."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest

from tilewright.evaluation.results import BenchmarkResult, Status
from tilewright.evaluation.statistics import PAIR_LOOKS
from tilewright.harness.figures import Comparison, Figure, Figures, alone
from tilewright.policy import Reason, VerdictKind, settled
from tilewright.rules import Rules

RECORDED = Path(__file__).parents[2] / "benchmarks" / "evidence" / "command_pairs.json"
Logs = np.ndarray
"""For each pair and case, the log of incumbent over candidate."""


def figures(**ms: float) -> Figures:
    return {f"of={name}": Figure({"of": name}, value) for name, value in ms.items()}


def recorded() -> Logs:
    """What identical arms of the fixture differed by, either way round."""
    pairs = json.loads(RECORDED.read_text())["pairs"]
    logs = np.array([[math.log(other / one) for one, other in zip(a[0], b[0], strict=True)] for a, b in pairs])
    return np.concatenate([logs, -logs])


def decided(logs: Logs) -> Comparison:
    """The production loop on these pairs: it stops at the first look that decides."""
    found = Comparison()
    for look in PAIR_LOOKS:
        for row in logs[len(found.pairs) : look]:
            arms = [figures(**{f"case {i}": 2.0 * math.exp(s * x) for i, x in enumerate(row)}) for s in (-1, 0)]
            found.pairs.append((arms[0], arms[1]))
        if found.is_decided():
            break
    return found


def kept(source: random.Random, logs: Logs, gain: float) -> bool:
    """Whether a session would keep a candidate whose pairs are drawn from `logs`: it has to win, and win again."""
    first, again = (
        decided(logs[[source.randrange(len(logs)) for _ in range(PAIR_LOOKS[-1])]] + gain).result() for _ in range(2)
    )
    verdict = settled(first, None, again, Rules())
    return verdict is not None and verdict.kind is VerdictKind.KEEP


def test_identical_arms_are_kept_in_at_most_one_of_a_hundred_trials_at_the_fixtures_noise() -> None:
    source, logs = random.Random(1), recorded()
    assert sum(kept(source, logs, 0.0) for _ in range(300)) <= 3


def test_a_gain_of_five_percent_is_kept_at_the_fixtures_noise() -> None:
    source, logs = random.Random(2), recorded()
    assert sum(kept(source, logs, math.log(1.05)) for _ in range(100)) >= 95


def test_cases_that_share_their_runs_luck_are_not_taken_for_independent() -> None:
    source = np.random.default_rng(3)
    wrong = 0
    for _ in range(400):
        luck = source.normal(0, 0.02, (PAIR_LOOKS[0], 1))
        found = Comparison()
        for row in np.repeat(luck, 20, axis=1):
            slower = figures(**{f"case {i}": math.exp(x) for i, x in enumerate(row)})
            found.pairs.append((slower, figures(**{f"case {i}": 1.0 for i in range(len(row))})))
        wrong += not found.overall().low <= 0 <= found.overall().high
    assert wrong <= 4, "twenty cases of one run are one sample"


def test_a_gain_overall_with_a_loss_on_one_case_is_a_regression() -> None:
    source = np.random.default_rng(4)
    logs = np.stack([source.normal(0.5, 0.01, PAIR_LOOKS[-1]), source.normal(-0.05, 0.01, PAIR_LOOKS[-1])], axis=1)
    verdict = settled(decided(logs).result(), None, None, Rules())
    assert verdict is not None
    assert (verdict.kind, verdict.reason) == (VerdictKind.REVERT, Reason.REGRESSION)
    assert "of=case 1" in verdict.detail


def test_a_case_that_may_be_slower_keeps_the_question_open() -> None:
    source = np.random.default_rng(5)
    clear = source.normal(0.5, 0.01, PAIR_LOOKS[0])
    doubtful = np.array([-0.2, 0.1, -0.15, 0.12, -0.2, 0.1, -0.1, 0.05])
    open_question = decided(np.stack([clear, doubtful], axis=1))
    assert not open_question.is_decided()
    assert decided(np.stack([clear, -doubtful], axis=1)).is_decided()


def test_what_can_gain_nothing_worth_a_run_is_not_measured_on() -> None:
    source = np.random.default_rng(6)
    found = decided(source.normal(0.0, 0.004, (PAIR_LOOKS[-1], 1)))
    assert len(found.pairs) <= PAIR_LOOKS[1]
    verdict = settled(found.result(), None, None, Rules())
    assert verdict is not None and verdict.reason is Reason.INCONCLUSIVE


def test_a_result_has_the_figures_in_ms_and_what_every_pair_was() -> None:
    found = Comparison()
    for one, other in ((1.0, 2.0), (1.1, 2.1), (0.9, 2.2)):
        found.pairs.append((figures(a=3.0, b=one), figures(b=other, a=3.0)))
    result = found.result()
    assert result.harness and result.status is Status.PASSED
    a, b = result.cases
    assert (a.speedup, b.latency_ms, b.incumbent_ms, b.pairs) == (1.0, 1.0, 2.1, 3)
    assert b.samples[1] == (1.1, 2.1, 1.1, 2.1)
    assert result.latency_ms == pytest.approx(math.sqrt(3.0))
    assert BenchmarkResult.model_validate_json(result.model_dump_json()) == result


def test_the_baseline_alone_says_how_much_its_runs_differ() -> None:
    result = alone([figures(a=value) for value in (1.0, 1.1, 1.05)])
    assert result.latency_ms == pytest.approx(1.05)
    assert result.cases[0].note == "3 runs within 10.0%"
