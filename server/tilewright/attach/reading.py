"""Which parser fits what a benchmark wrote, tried in turn: the first that reads a figure is taken."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from tilewright.attach.trial import Tried
from tilewright.commandtask import MILLISECONDS as UNITS
from tilewright.commandtask import Benchmark, Parser
from tilewright.harness.figures import Figure, FigureError, read_figures
from tilewright.harness.metrics import Metric, metric
from tilewright.harness.printed import MILLISECONDS, unit_of

STATISTICS = ("median", "mean", "min", "latency_ms", "latency", "time_ms", "time")
_FRACTION = re.compile(r"^\d*\.\d+(e[-+]?\d+)?$|^\d+e[-+]?\d+$", re.IGNORECASE)
_PRINTED = r"^(?P<framework>\w+): (?P<value>\{.*\})(?: ms)?$"


@dataclass(frozen=True)
class Reading:
    """The keys of a `[benchmark]` table beside its command, and the figures that they read."""

    keys: dict[str, Any]
    figures: list[Figure]


def fitting(tried: Tried, command: list[str], words: list[str]) -> Reading | None:
    """The first way to read the figures of a run; `words`, such as a backend's name, narrow them where they occur."""
    for keys, text in _ways(tried):
        for statistic in STATISTICS if "statistic" in keys else ("",):
            full = keys | ({"statistic": statistic} if statistic else {})
            for select in (words, []) if words and keys["parser"] != Parser.CSV else ([],):
                found = _read(text, full | ({"select": select} if select else {}), command)
                if found is not None:
                    return _told_apart(found, text, command)
    return None


def _told_apart(found: Reading, text: str, command: list[str]) -> Reading:
    """The same reading with the key that names the latency in `select`, where all its figures have one."""
    last = {str(figure.case.get("of", "")).rpartition(" ")[2].casefold() for figure in found.figures}
    key = last.pop() if len(last) == 1 else ""
    if found.keys["parser"] == Parser.CSV or not re.fullmatch(r"[a-z0-9_.+]+", key):
        return found
    if metric(key) is not Metric.LATENCY or key in found.keys.get("select", []):
        return found
    narrowed = _read(text, found.keys | {"select": [*found.keys.get("select", []), key]}, command)
    return narrowed if narrowed is not None and narrowed.figures == found.figures else found


def _read(text: str, keys: dict[str, Any], command: list[str]) -> Reading | None:
    try:
        benchmark = Benchmark.model_validate({"command": command} | keys)
        telling = {name: value for name, value in keys.items() if (name, value) != ("statistic", "median")}
        return Reading(telling, read_figures(text, benchmark))
    except (FigureError, ValueError):
        return None


def _ways(tried: Tried) -> Iterator[tuple[dict[str, Any], str]]:
    """Keys to try, `statistic` among them where it is open, and the text that they are about."""
    if tried.out:
        yield {"parser": "pytest-benchmark", "statistic": ""}, tried.out
    for name in dict.fromkeys(name for test in tried.tests for name, _ in test.properties):
        unit = _unit(name)
        yield {"parser": "junit-property", "property": name, "unit": unit, "statistic": ""}, tried.junit
    for name, text in [*tried.written.items(), ("", tried.ran.stdout)]:
        file = {"file": name} if name else {}
        if PurePosixPath(name).suffix == ".csv":
            yield from _columns(text, file)
        yield {"parser": "regex", "pattern": _PRINTED, "unit": "ms", "statistic": "", **file}, text
        yield {"parser": "printed", **file}, text
        if "{" in text or "[" in text:
            yield {"parser": "json", "unit": "ms", "statistic": "", **file}, text
        yield {"parser": "printed", "unit": "ms", **file}, text


def _columns(text: str, file: dict[str, str]) -> Iterator[tuple[dict[str, Any], str]]:
    """A perf_report's providers: columns that hold fractions, one at a time, as one benchmark names one."""
    lines = [line.split(",") for line in text.splitlines() if line.strip()]
    stem = PurePosixPath(file.get("file", "")).stem  # a plot's name, such as gemm-tflops
    for number, name in enumerate(lines[0] if lines else []):
        cells = [row[number] for row in lines[1:] if number < len(row)]
        if Metric.OTHER in (metric(name), metric(stem)) and metric(name) is not Metric.LATENCY:
            continue
        if cells and all(_FRACTION.match(cell.strip()) for cell in cells) and any(float(c) % 1 for c in cells):
            yield {"parser": "perf-report", "select": [name.strip()], "unit": _unit(name), **file}, text


def _unit(name: str) -> str:
    """The unit that a name says, as a task writes it; `ms` where it says none."""
    scale = MILLISECONDS.get(unit_of(name), 1.0)
    return next(unit for unit, milliseconds in UNITS.items() if milliseconds == scale)


def shown(keys: dict[str, Any]) -> str:
    """The keys as lines of TOML."""
    return "\n".join(f"{name} = {quoted(value)}" for name, value in keys.items())


def quoted(value: object) -> str:
    """A string or list of strings in TOML; text with a backslash as a literal where it can be one."""
    if isinstance(value, str) and "\\" in value and "'" not in value:
        return f"'{value}'"
    return json.dumps(value, ensure_ascii=False)
