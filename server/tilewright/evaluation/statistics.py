"""Deciding from paired measurements: confidence intervals of log-ratios, looked at a few times while they grow.

Method: Student's t interval on the log-ratios of interleaved pairs, which for clock-drift-free pairs are close to
normal; the looks share one error probability (Bonferroni over the looks, the simplest group-sequential bound; see
Jennison and Turnbull, "Group Sequential Methods", 1999).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LOOKS = (12, 24, 48)
"""Numbers of pairs after which the question may be closed."""
ERROR_PROBABILITY = 0.01
"""Of an interval, over all its looks, missing the truth."""
GOOD_ENOUGH = 0.0025
"""Half-width of a log-ratio below which a further look adds nothing."""


@dataclass(frozen=True)
class Interval:
    """An estimate of a log-ratio with its confidence interval; `error` is the estimate's standard error."""

    mean: float
    low: float
    high: float
    error: float
    samples: int

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0

    def ratio(self) -> tuple[float, float, float]:
        """The estimate and its interval as ratios: (value, low, high)."""
        return math.exp(self.mean), math.exp(self.low), math.exp(self.high)


def _critical(samples: int) -> float:
    from scipy.stats import t

    return float(t.ppf(1 - ERROR_PROBABILITY / len(LOOKS) / 2, max(samples - 1, 1)))


def interval(log_ratios: Sequence[float]) -> Interval:
    """Student's t interval of the mean. Raises ValueError for fewer than two samples."""
    count = len(log_ratios)
    if count < 2:
        raise ValueError("an interval needs at least two samples")
    mean = math.fsum(log_ratios) / count
    variance = math.fsum((value - mean) ** 2 for value in log_ratios) / (count - 1)
    error = math.sqrt(variance / count)
    half = _critical(count) * error
    return Interval(mean, mean - half, mean + half, error, count)


def is_decided(found: Interval) -> bool:
    """Whether more pairs would change nothing: a clear difference, or an interval too narrow to matter."""
    if found.half_width < GOOD_ENOUGH:
        return True
    return found.excludes_zero and found.half_width < 0.25 * abs(found.mean)


def combined(intervals: Sequence[Interval]) -> Interval:
    """The mean over independent cases of their log-ratios. Raises ValueError where there is none."""
    if not intervals:
        raise ValueError("nothing to combine")
    count = len(intervals)
    mean = math.fsum(found.mean for found in intervals) / count
    error = math.sqrt(math.fsum(found.error**2 for found in intervals)) / count
    samples = min(found.samples for found in intervals)
    half = _critical(samples) * error
    return Interval(mean, mean - half, mean + half, error, samples)
