"""Deciding between two arms by a repository's own figures: interleaved runs, paired, looked at a few times.

Every pair is one run of the command for each arm, in processes of their own. Cases that one run measures share its
luck, so the overall speedup is taken from each pair's mean over the cases, never from the cases as if they were
independent. The method is that of turns in processes of their own.
"""

from __future__ import annotations

import math
import statistics as plain_statistics
from collections.abc import Sequence
from typing import NamedTuple

from tilewright.evaluation import statistics
from tilewright.evaluation.results import BenchmarkResult, CaseTiming, Level, Status, geometric_mean
from tilewright.evaluation.statistics import Evidence, Interval, Pair
from tilewright.harness.figures import Figure
from tilewright.rules import DEFAULT, Rules

WORTHWHILE = 0.02
"""Log-ratio of a gain that is looked for: once it is surely less, further runs would cost more than they are worth."""
DOUBTFUL = -0.005
"""A case that seems slower than this, but not surely, keeps the question open."""


class Measured(NamedTuple):
    """One run of the benchmark command: its figures in their order, and how long it took in s."""

    figures: list[Figure]
    seconds: float


class Comparison:
    """The pairs so far, candidate first."""

    def __init__(self, rules: Rules = DEFAULT) -> None:
        self._rules = rules
        self._pairs: list[tuple[Measured, Measured]] = []

    def __len__(self) -> int:
        return len(self._pairs)

    def add(self, candidate: Measured, incumbent: Measured) -> None:
        """Take one more pair; both have the same cases, in any order."""
        self._pairs.append((candidate, incumbent))

    def is_decided(self) -> bool:
        """Whether more pairs would change nothing that matters; to be asked at the looks alone."""
        whole = self.overall()
        if whole.high < 0 or whole.half_width < statistics.GOOD_ENOUGH:
            return True
        if whole.low <= self._rules.resolution:
            return whole.high < WORTHWHILE
        cases = [self._evidence(number).speedup for number in range(len(self._pairs[0][0].figures))]
        return not any(case.mean < DOUBTFUL and case.high >= 0 for case in cases)

    def overall(self) -> Interval:
        """The log-ratio over all cases, of incumbent over candidate."""
        return Evidence([Pair(*map(_mean, pair)) for pair in self._pairs], self._rules).speedup

    def result(self) -> BenchmarkResult:
        """What the pairs say."""
        first = self._pairs[0][0].figures
        speedup, low, high = self.overall().ratio()
        timings = [self._timing(number) for number in range(len(first))]
        return BenchmarkResult(
            status=Status.PASSED,
            level=Level.HARNESS,
            latency_ms=geometric_mean([timing.latency_ms for timing in timings]),
            speedup=speedup,
            speedup_low=low,
            speedup_high=high,
            cases=timings,
        )

    def _evidence(self, number: int) -> Evidence:
        return Evidence([Pair(*self._of(number, pair)) for pair in self._pairs], self._rules)

    def _timing(self, number: int) -> CaseTiming:
        pairs = [self._of(number, pair) for pair in self._pairs]
        speedup, low, high = self._evidence(number).speedup.ratio()
        return CaseTiming(
            case=self._pairs[0][0].figures[number].case,
            level=Level.HARNESS,
            latency_ms=plain_statistics.median(pair[0] for pair in pairs),
            incumbent_ms=plain_statistics.median(pair[1] for pair in pairs),
            speedup=speedup,
            speedup_low=low,
            speedup_high=high,
            pairs=len(pairs),
            samples=[
                (*times, 1e3 * candidate.seconds, 1e3 * incumbent.seconds)
                for times, (candidate, incumbent) in zip(pairs, self._pairs, strict=True)
            ],
        )

    def _of(self, number: int, pair: tuple[Measured, Measured]) -> tuple[float, float]:
        """One case's latencies in ms in a pair."""
        label = self._pairs[0][0].figures[number].label
        one, other = ({figure.label: figure.milliseconds for figure in arm.figures}[label] for arm in pair)
        return one, other


def alone(runs: Sequence[Measured]) -> BenchmarkResult:
    """The baseline's latencies: of each case the median over the runs, and by how much they spread."""
    timings = []
    for figure in runs[0].figures:
        values = [next(one.milliseconds for one in run.figures if one.label == figure.label) for run in runs]
        spread = max(values) / min(values) - 1
        latency = plain_statistics.median(values)
        timings.append(
            CaseTiming(
                case=figure.case,
                level=Level.HARNESS,
                latency_ms=latency,
                note=f"{len(runs)} runs within {100 * spread:.1f}%",
            )
        )
    return BenchmarkResult(
        status=Status.PASSED,
        level=Level.HARNESS,
        latency_ms=geometric_mean([timing.latency_ms for timing in timings]),
        cases=timings,
    )


def _mean(arm: Measured) -> float:
    return math.exp(math.fsum(math.log(figure.milliseconds) for figure in arm.figures) / len(arm.figures))
