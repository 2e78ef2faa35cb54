"""Which pattern reads the figures of a benchmark: a list is tried in turn, and the first that fits is taken."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.attach.trial import Tried
from tilewright.commandtask import MILLISECONDS, Benchmark
from tilewright.harness.figures import Figure, FigureError, read_figures
from tilewright.harness.outcomes import properties_of
from tilewright.task import Case

NUMBER = r"\d*\.?\d+(?:[eE][-+]?\d+)?"
STATISTICS = ("median", "mean", "min")
_NAMES = r"(?:latency|time|elapsed|duration|median|mean)"
_LINE = r"^(?!=|\d+ (?:passed|skipped))"
"""The start of a line that is not pytest's own summary, which ends in the time that the tests took."""
_RATE = re.compile(r"flops|gb/?s|bandwidth|throughput|speedup|memory|error|ops", re.IGNORECASE)
Texts = list[tuple[Case, str]]


@dataclass(frozen=True)
class Reading:
    """The keys of a `[benchmark]` table beside its command, and the figures that they read."""

    keys: dict[str, Any]
    figures: list[Figure]


def fitting(runs: Sequence[Tried], command: list[str], words: list[str]) -> Reading | None:
    """The first way to read figures that gives the same cases in each run; `words`, such as a backend's name, narrow
    them where they occur."""
    for chosen in (words, []) if words else ([],):
        ways = [dict(_ways(run, chosen)) for run in runs]
        for keys in ways[0]:
            if not all(keys in way for way in ways):
                continue
            try:
                benchmark = Benchmark.model_validate({"command": command} | dict(keys))
                read = [read_figures(way[keys], benchmark) for way in ways]
            except (FigureError, ValueError):
                continue
            rates = any(_RATE.search(str(figure.case.get("name", ""))) for figure in read[0])
            if not rates and len({tuple(sorted(figure.label for figure in figures)) for figures in read}) == 1:
                return Reading(dict(keys), read[0])
    return None


def _ways(tried: Tried, words: list[str]) -> Iterator[tuple[tuple[tuple[str, str], ...], Texts]]:
    """Keys to try, and the texts that they search."""
    word = words[0] if words else ""
    if tried.out:
        for statistic in STATISTICS:  # pytest-benchmark's file, in seconds
            pattern = rf'"fullname": "(?P<test>[^"]*{re.escape(word)}[^"]*)"(?s:.*?)"{statistic}": (?P<s>{NUMBER})'
            yield (("pattern", pattern),), [({}, tried.out)]
    for name in dict.fromkeys(name for test in tried.tests for name, _ in test.properties):
        texts = properties_of(tried.junit, name)
        for pattern in _nested(word) if not _RATE.search(name) else ():
            yield (("property", name), ("pattern", pattern)), texts
    for pattern in _printed(word):
        yield (("pattern", pattern),), [({}, tried.ran.stdout)]


def _nested(word: str) -> Iterator[str]:
    """Patterns for a recorded value: a number, or a dict with a statistic somewhere below the word."""
    if not word:
        yield rf"^(?P<ms>{NUMBER})$"
    below = rf"'{re.escape(word)}'.*?" if word else ""
    for name in ("latency_ms", "latency", "time_ms"):
        yield rf"{below}'{name}': (?:\{{[^}}]*?'(?:median|mean)': )?(?P<ms>{NUMBER})"
    inner = r"[^{}]*?'(?P<name>\w+)': \{"
    block = rf"'{re.escape(word)}': \{{(?:{inner})?" if word else r"'(?P<name>\w+)': \{"
    for statistic in STATISTICS:
        yield rf"{block}[^{{}}]*?'{statistic}': (?P<ms>{NUMBER})"


def _printed(word: str) -> Iterator[str]:
    """Patterns for lines with a time: its unit in its name or behind it."""
    case = rf"{_LINE}(?P<case>[^\n]*?{re.escape(word)}[^\n]*?)" if word else rf"{_LINE}(?P<case>[^\n]*?)"
    for unit in MILLISECONDS:
        yield rf"{case}[\s|,{{\"'(]*\b{_NAMES}_{unit}[\"']?\s*[=:]\s*(?P<{unit}>{NUMBER})"
    for unit in MILLISECONDS:
        yield rf"{case}[\s:=|,(]+(?P<{unit}>{NUMBER})\s?{unit}\b"


def shown(keys: dict[str, Any]) -> str:
    """The keys as lines of TOML."""
    return "\n".join(f"{name} = {quoted(value)}" for name, value in keys.items())


def quoted(value: object) -> str:
    """A string or list of strings in TOML; text with a backslash as a literal where it can be one."""
    if isinstance(value, str) and "\\" in value and "'" not in value:
        return f"'{value}'"
    if isinstance(value, str) and "\\" in value and "'''" not in value and not value.endswith("'"):
        return f"'''{value}'''"
    return json.dumps(value, ensure_ascii=False)
