"""The figures of a benchmark command: what one regular expression finds in what it wrote.

All of it is text that a candidate may have written: it is searched as data, never run, and no figure is mended.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from tilewright.commandtask import MILLISECONDS, Benchmark, unit_of
from tilewright.task import Case, case_label
from tilewright.text import cut


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
