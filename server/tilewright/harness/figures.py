"""The figures of a benchmark command, and what they say of two versions.

A figure is what one regular expression finds in what the command wrote, which a candidate may have written: it is
searched as data, never run, and no figure is mended.

Every pair is one run of the command for each arm, in processes of their own. Cases that one run measures share its
luck, so the overall speedup is taken from each pair's mean over the cases, never from the cases as if they were
independent. The method is that of turns in processes of their own.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tilewright.commandtask import MILLISECONDS, Benchmark, unit_of
from tilewright.evaluation.results import BenchmarkResult, CaseTiming, Level, Status, geometric_mean
from tilewright.evaluation.statistics import PRECISE, Interval, Pair, gain, paired
from tilewright.rules import DEFAULT, Rules
from tilewright.task import Case, case_label
from tilewright.text import cut

WORTHWHILE = 0.02
"""Log-ratio of a gain that is looked for: once it is surely less, further runs would cost more than they are worth."""
DOUBTFUL = -0.005
"""A case that seems slower than this, but not surely, keeps the question open."""


class Figure(NamedTuple):
    """One case's latency in ms."""

    case: Case
    ms: float


Figures = dict[str, Figure]
"""Those of one run, by the labels of their cases."""


def read_figures(texts: Iterable[tuple[Case, str]], benchmark: Benchmark) -> Figures:
    """The figures that the benchmark's pattern finds in each text; a text comes with what is known of its cases, such
    as the test that recorded it. Raises ValueError, which shows what was searched, if there is none, or if one is no
    positive number."""
    pattern = re.compile(benchmark.pattern, re.MULTILINE)
    unit = unit_of(benchmark.pattern)
    found: Figures = {}
    searched = []
    for known, text in texts:
        searched.append(text)
        for match in pattern.finditer(text):
            names = {name: value for name, value in match.groupdict().items() if name != unit and value is not None}
            first: Case = {**known, **names} or {"of": "figure"}
            case, number = first, 1
            while case_label(case) in found:
                number += 1
                case = {**first, "figure": number}
            found[case_label(case)] = Figure(case, _positive(match[unit], case, match[0]) * MILLISECONDS[unit])
    if not found:
        raise ValueError(f"the pattern {benchmark.pattern!r} finds nothing in {_shown(' '.join(searched))}")
    return found


def _positive(text: str, case: Case, shown: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{case_label(case)}: {text!r} is no latency, in {_shown(shown)}")
    return value


def _shown(text: str) -> str:
    return repr(cut(" ".join(text.split()), 300))


class Comparison:
    """The pairs so far, candidate first. Both figures of a pair have the same cases."""

    def __init__(self, rules: Rules = DEFAULT) -> None:
        self._rules = rules
        self.pairs: list[tuple[Figures, Figures]] = []

    def is_decided(self) -> bool:
        """Whether more pairs would change nothing that matters; to be asked at the looks alone."""
        whole = self.overall()
        if whole.high < 0 or whole.half_width < PRECISE:
            return True
        if whole.low <= self._rules.resolution:
            return whole.high < WORTHWHILE
        cases = [gain(self._of_case(label), self._rules) for label in self.pairs[0][0]]
        return not any(case.mean < DOUBTFUL and case.high >= 0 for case in cases)

    def overall(self) -> Interval:
        """The log-ratio over all cases, of incumbent over candidate."""
        means = [(_mean(candidate), _mean(incumbent)) for candidate, incumbent in self.pairs]
        return gain(means, self._rules)

    def result(self) -> BenchmarkResult:
        """What the pairs say."""
        timings = []
        for label, figure in self.pairs[0][0].items():
            pairs = self._of_case(label)
            latency = statistics.median(candidate for candidate, _ in pairs)
            found = paired(pairs, gain(pairs, self._rules))
            timings.append(CaseTiming(case=figure.case, level=Level.HARNESS, latency_ms=latency, **found))
        speedup, low, high = self.overall().ratio()
        overall = {"speedup": speedup, "speedup_low": low, "speedup_high": high}
        return _result(timings).model_copy(update=overall)

    def _of_case(self, label: str) -> list[Pair]:
        return [(candidate[label].ms, incumbent[label].ms) for candidate, incumbent in self.pairs]


def _mean(figures: Figures) -> float:
    return geometric_mean([one.ms for one in figures.values()])


def alone(runs: Sequence[Figures]) -> BenchmarkResult:
    """The baseline's latencies: of each case the median over the runs, and by how much they spread."""
    timings = []
    for label, figure in runs[0].items():
        values = [run[label].ms for run in runs]
        spread = max(values) / min(values) - 1
        note = f"{len(runs)} runs within {100 * spread:.1f}%"
        latency = statistics.median(values)
        timings.append(CaseTiming(case=figure.case, level=Level.HARNESS, latency_ms=latency, note=note))
    return _result(timings)


def _result(timings: list[CaseTiming]) -> BenchmarkResult:
    latency = geometric_mean([timing.latency_ms for timing in timings])
    return BenchmarkResult(status=Status.PASSED, level=Level.HARNESS, latency_ms=latency, cases=timings)
