"""The figures of a benchmark command: what one regular expression finds in what it wrote.

All of it is text that a candidate may have written: it is searched as data, never run, and no figure is mended.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tilewright.commandtask import MILLISECONDS, Benchmark, unit_of
from tilewright.task import Case, case_label
from tilewright.text import cut

FIGURES_LIMIT = 20_000


class FigureError(ValueError):
    """What was read is no latency; the text shows what was searched, and says what to do."""


@dataclass(frozen=True)
class Figure:
    """One case's latency in ms, and the text that it was read from."""

    case: Case
    milliseconds: float
    line: str = field(default="", compare=False)

    @property
    def label(self) -> str:
        return case_label(self.case)


def read_figures(texts: Iterable[tuple[Case, str]], benchmark: Benchmark) -> list[Figure]:
    """The figures that the benchmark's pattern finds in each text, one for each case; a text comes with what is known
    of its cases, such as the test that recorded it. Raises `FigureError` where there is none, or a wrong one: what is
    not a positive number is no latency."""
    pattern = re.compile(benchmark.pattern, re.MULTILINE)
    unit = unit_of(benchmark.pattern)
    found: list[Figure] = []
    labels: Counter[str] = Counter()
    searched = []
    for known, text in texts:
        searched.append(text)
        for match in pattern.finditer(text):
            names = {name: value for name, value in match.groupdict().items() if name != unit and value is not None}
            case: Case = {**known, **names} or {"of": "figure"}
            labels[case_label(case)] += 1
            if (number := labels[case_label(case)]) > 1:
                case = {**case, "figure": number}
            found.append(Figure(case, _positive(match[unit], case, match[0]) * MILLISECONDS[unit], match[0]))
            if len(found) > FIGURES_LIMIT:
                raise FigureError(f"more than {FIGURES_LIMIT} figures: narrow the command or the pattern")
    if not found:
        raise FigureError(f"the pattern {benchmark.pattern!r} finds nothing in {_shown(' '.join(searched))}")
    return found


def _positive(text: str, case: Case, shown: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value <= 0:
        raise FigureError(f"{case_label(case)}: {text!r} is no latency, in {_shown(shown)}")
    return value


def _shown(text: str) -> str:
    return repr(cut(" ".join(text.split()), 300))
