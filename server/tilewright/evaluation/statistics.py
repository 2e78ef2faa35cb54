"""Deciding from paired measurements: confidence intervals of log-ratios, looked at a few times while they grow.

Each pair of turns gives a log-ratio of incumbent over candidate. Method: the trimmed mean and its t interval
(K. Yuen, "The two-sample trimmed t for unequal population variances", Biometrika 61, 1974, for one sample; quantiles
by Student's t), since pairs that the machine disturbed are outliers. All looks share one error probability
(Bonferroni over the looks, the simplest group-sequential bound; C. Jennison and B. Turnbull, "Group Sequential
Methods", 1999), which is a session's divided by the experiments that it has room for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from tilewright.rules import DEFAULT, Rules

LOOKS = (8, 16, 32, 64, 128)
"""Numbers of pairs after which the question may be closed."""
EXPERIMENTS = 25
"""By which a session's error is divided at least: a shorter session has no looser rule, since another can follow it."""
GOOD_ENOUGH = 0.0015
"""Half-width of a log-ratio below which a further look adds nothing."""
TRIMMED = 0.2
"""Share of the pairs that is left out at either end."""


def error_probability(rules: Rules) -> float:
    """The probability that an interval misses the truth on either side, over all its looks, in a session by `rules`."""
    return 2 * rules.session_error / max(rules.max_iterations, EXPERIMENTS)


ERROR_PROBABILITY = error_probability(DEFAULT)


class Pair(NamedTuple):
    """One pair of turns: milliseconds for one call of each arm."""

    candidate: float
    incumbent: float

    @property
    def log_ratio(self) -> float:
        return math.log(self.incumbent / self.candidate)


@dataclass(frozen=True)
class Interval:
    """An estimate of a log-ratio with its confidence interval; `error` is the estimate's standard error, and `freedom`
    the degrees of freedom of Student's t."""

    mean: float
    low: float
    high: float
    error: float
    samples: int
    freedom: int

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0

    def ratio(self) -> tuple[float, float, float]:
        """The estimate and its interval as ratios: (value, low, high)."""
        return math.exp(self.mean), math.exp(self.low), math.exp(self.high)


@dataclass
class Evidence:
    """The pairs of one case so far, and what they say."""

    pairs: list[Pair] = field(default_factory=list)
    rules: Rules = DEFAULT

    @property
    def speedup(self) -> Interval:
        return interval([pair.log_ratio for pair in self.pairs], error_probability(self.rules))

    def is_decided(self, only: bool = False) -> bool:
        """Whether more pairs would change nothing: a clear loss, a clear gain, or a difference that is too small to
        matter and known well enough. `only`: there is no other case whose gain it might be weighed with,
        so that what can no longer count as a gain need not be known as well: a loss of less than that may stay open."""
        found, resolution = self.speedup, self.rules.resolution
        if only and found.high < resolution and found.half_width < resolution:
            return True
        if found.high < 0 and found.half_width < 0.25 * abs(found.mean):
            return True
        if found.half_width < GOOD_ENOUGH and found.low <= resolution:
            return True
        return found.low > resolution and found.half_width < 0.25 * found.mean


def interval(log_ratios: Sequence[float], error_probability: float = ERROR_PROBABILITY) -> Interval:
    """The interval of the trimmed mean, which all looks together miss with `error_probability`.

    Raises ValueError for fewer than two samples.
    """
    count = len(log_ratios)
    if count < 2:
        raise ValueError("an interval needs at least two samples")
    ordered = sorted(log_ratios)
    cut = int(TRIMMED * count)
    kept = ordered[cut : count - cut]
    mean = math.fsum(kept) / len(kept)
    winsorized = [kept[0]] * cut + kept + [kept[-1]] * cut
    centre = math.fsum(winsorized) / count
    variance = math.fsum((value - centre) ** 2 for value in winsorized) / (count - 1)
    error = math.sqrt((count - 1) * variance / (len(kept) * max(len(kept) - 1, 1)))
    half = _critical(len(kept) - 1, error_probability) * error
    return Interval(mean, mean - half, mean + half, error, count, max(len(kept) - 1, 1))


@lru_cache
def _critical(freedom: int, error_probability: float) -> float:
    return student_quantile(error_probability / len(LOOKS), max(freedom, 1))


def student_quantile(error_probability: float, freedom: int) -> float:
    """The value that the magnitude of a Student t with `freedom` degrees of freedom exceeds with that probability.

    The finite series of Abramowitz and Stegun, 26.7.3 and 26.7.4, over the angle atan(t / sqrt(freedom)), bisected.
    """
    low, high = 0.0, math.pi / 2
    while (angle := (low + high) / 2) not in (low, high):
        if 1 - _central(angle, freedom) > error_probability:
            low = angle
        else:
            high = angle
    return math.tan(low) * math.sqrt(freedom)


def _central(angle: float, freedom: int) -> float:
    """The probability of a magnitude up to tan(angle) * sqrt(freedom)."""
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for number in range(2 + odd, freedom - 1, 2):
        term *= (number - 1) / number * math.cos(angle) ** 2
        total += term
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total


def combined(
    intervals: Sequence[Interval], error_probability: float = ERROR_PROBABILITY, weights: Sequence[float] = ()
) -> Interval:
    """The weighted mean over independent cases of their log-ratios. Raises ValueError where there is none."""
    if not intervals:
        raise ValueError("nothing to combine")
    weights = weights or [1.0] * len(intervals)
    weighed, total = [*zip(weights, intervals, strict=True)], math.fsum(weights)
    mean = math.fsum(weight * found.mean for weight, found in weighed) / total
    error = math.sqrt(math.fsum((weight * found.error) ** 2 for weight, found in weighed)) / total
    samples, freedom = min(found.samples for found in intervals), min(found.freedom for found in intervals)
    half = _critical(freedom, error_probability) * error
    return Interval(mean, mean - half, mean + half, error, samples, freedom)
