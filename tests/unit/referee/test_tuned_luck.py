"""Ten edits of a wrapper that tunes, none of which changes anything: how often a session keeps one of them.

Of twelve configs within 5% of each other, a tuner takes the fastest by times with a noise of 1 to 2%. Rounds have the
spread that replays have, and the comparison is the product's own.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tilewright.evaluation.statistics import LOOKS, Comparison, Figures, opponents
from tilewright.rules import DEFAULT

US = 100.0
CONFIGS, WITHIN = 12, 0.05
ROUND = 0.001
"""Standard deviation of a round's figure, as a share."""
EDITS = 10
SESSIONS = 150
ERROR = 0.05 / 25
"""Of one experiment, in a session of 25."""


def drawn(source: random.Random, configs: Sequence[float], noise: float) -> float:
    """What a fresh process launches: the time of the config that its tuner takes."""
    return min(configs, key=lambda us: us * (1 + source.gauss(0, noise)))


def gains(source: random.Random, incumbent: Sequence[float], candidate: Sequence[float]) -> bool:
    """Whether the candidate is faster by its programs' rounds."""
    if {*candidate} <= {*incumbent}:
        return False
    found, rounds = Comparison(error_probability=ERROR, rules=DEFAULT), list[Figures]()
    for look in LOOKS:
        while len(rounds) < look:
            us = (*(one * (1 + source.gauss(0, ROUND)) for one in (*incumbent, *candidate)), 2.0)
            rounds.append(Figures(us, us))
        found.arms = opponents(rounds, len(incumbent))
        found.rounds = [one.of(*found.arms) for one in rounds]
        if found.decided:
            break
    return found.verdict == "faster"


def kept(source: random.Random, noise: float, captures: int) -> int:
    """How many of the edits a session keeps that captures each so many times. If these are several, a candidate is
    captured as often again before it is kept, and so is the baseline."""
    configs = [US * (1 + WITHIN * source.random()) for _ in range(CONFIGS)]

    def several() -> list[float]:
        return [drawn(source, configs, noise) for _ in range(captures)]

    incumbent, count = several() + (several() if captures > 1 else []), 0
    for _ in range(EDITS):
        candidate = several()
        if not gains(source, incumbent, candidate):
            continue
        candidate += several() if captures > 1 else []
        if gains(source, incumbent, candidate):
            incumbent, count = candidate, count + 1
    return count


@pytest.mark.parametrize("noise", [0.01, 0.02])
def test_edits_that_change_nothing_are_kept_in_few_sessions(noise: float) -> None:
    source = random.Random(2026)
    sessions = [kept(source, noise, captures=2) for _ in range(SESSIONS)]
    assert sum(count > 0 for count in sessions) <= 0.05 * SESSIONS


def test_with_one_capture_of_each_most_sessions_keep_one() -> None:
    source = random.Random(2026)
    sessions = [kept(source, 0.02, captures=1) for _ in range(SESSIONS)]
    assert sum(count > 0 for count in sessions) > 0.5 * SESSIONS
