"""Which parser fits what a benchmark wrote, tried in turn: the first that reads a figure is taken."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from tilewright.attach.trial import Tried
from tilewright.commandtask import Benchmark, Parser
from tilewright.harness.figures import Figure, FigureError, read_figures
from tilewright.harness.metrics import Metric, metric

STATISTICS = ("median", "mean", "min", "latency_ms", "latency", "time_ms", "time")
_LATENCY = re.compile(r"latency|time|elapsed|duration|(^|[_\W])(ms|us)($|\W)", re.IGNORECASE)
_UNITS = {"ms": "ms", "us": "us", "µs": "us", "ns": "ns", "s": "s", "sec": "s"}
_PAIR = re.compile(r"(?P<key>[A-Za-z_][\w.()]*)\s*[=:]\s*(?P<value>[^\s|,;]+)")
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


def _timed(name: str) -> bool:
    return bool(_LATENCY.search(name)) and metric(name) is not Metric.OTHER


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
        unit = _unit(name) or "ms"
        yield {"parser": "junit-property", "property": name, "unit": unit, "statistic": ""}, tried.junit
    for name, text in [*tried.written.items(), ("", tried.ran.stdout)]:
        file = {"file": name} if name else {}
        if PurePosixPath(name).suffix == ".csv":
            yield from _columns(text, file)
        yield {"parser": "regex", "pattern": _PRINTED, "unit": "ms", "statistic": "", **file}, text
        if "{" in text or "[" in text:
            unit = "ms" if "_ms" in text else "us" if "_us" in text else "ms"
            yield {"parser": "json", "unit": unit, "statistic": "", **file}, text
        for pattern, unit in (*_rows(text), *_pairs(text)):
            yield {"parser": "regex", "pattern": pattern, "unit": unit, **file}, text


def _columns(text: str, file: dict[str, str]) -> Iterator[tuple[dict[str, Any], str]]:
    """A perf_report's providers: columns that hold fractions, one at a time, as one benchmark names one."""
    lines = [line.split(",") for line in text.splitlines() if line.strip()]
    stem = PurePosixPath(file.get("file", "")).stem  # a plot's name, such as gemm-tflops
    for number, name in enumerate(lines[0] if lines else []):
        cells = [row[number] for row in lines[1:] if number < len(row)]
        if Metric.OTHER in (metric(name), metric(stem)) and metric(name) is not Metric.LATENCY:
            continue
        if cells and all(_FRACTION.match(cell.strip()) for cell in cells) and any(float(c) % 1 for c in cells):
            yield {"parser": "perf-report", "select": [name.strip()], "unit": _unit(name) or "ms", **file}, text


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """A pattern for lines such as `op=gelu | m=256 | latency_ms=0.1`: what is no fraction makes the case's name."""
    for line in text.splitlines():
        pairs = [(match["key"], match["value"], match.start()) for match in _PAIR.finditer(line)]
        timed = next((key for key, value, _ in pairs if _timed(key) and _FRACTION.match(value)), "")
        if not timed:
            continue
        pattern, used = "^", set()
        for key, value, _ in pairs:
            name = re.sub(r"\W", "_", key)
            label = key != timed and not _FRACTION.match(value) and name not in used and not _LATENCY.search(key)
            if key == timed:
                pattern += rf".*?\b{re.escape(key)}\s*[=:]\s*(?P<value>[0-9][-+0-9.eE]*)"
                yield pattern, _unit(timed) or _unit_after(line)
                return
            if label:
                used.add(name)
                pattern += rf".*?\b{re.escape(key)}\s*[=:]\s*(?P<{name}>[^\s|,;]+)"
        return


def _rows(text: str) -> Iterator[tuple[str, str]]:
    """A pattern for the rows of a Markdown table that has a column of latencies."""
    lines = [line.strip() for line in text.splitlines()]
    for header, rule, row in zip(lines, lines[1:], lines[2:], strict=False):
        if not (header.startswith("|") and re.fullmatch(r"[|\s:-]+", rule) and row.startswith("|")):
            continue
        names = [cell.strip() for cell in header.strip("|").split("|")]
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        timed = next((i for i, name in enumerate(names) if _timed(name) and i < len(cells)), None)
        if timed is None or len(cells) != len(names) or not _FRACTION.match(cells[timed]):
            continue
        groups = []
        for i, (name, cell) in enumerate(zip(names, cells, strict=True)):
            group = re.sub(r"\W", "_", name)
            if i == timed:
                groups.append(r"(?P<value>[0-9][-+0-9.eE]*)")
            elif _FRACTION.match(cell) or not group.isidentifier() or f"(?P<{group}>" in "".join(groups):
                groups.append("[^|]*?")
            else:
                groups.append(rf"(?P<{group}>[^|]*?)")
        yield r"^\|\s*" + r"\s*\|\s*".join(groups) + r"\s*\|$", _unit(names[timed]) or "ms"
        return


def _unit(name: str) -> str:
    """The unit that a name ends in, as in latency_ms or `time (us)`; empty where it names none."""
    found = re.search(r"(?:^|[_\W])(ms|us|µs|ns|sec|s)\W*$", name)
    return _UNITS[found[1]] if found else ""


def _unit_after(line: str) -> str:
    found = re.search(r"\d\s*(ms|us|µs|ns)\b", line)
    return _UNITS[found[1]] if found else "ms"


def shown(keys: dict[str, Any]) -> str:
    """The keys as lines of TOML."""
    return "\n".join(f"{name} = {quoted(value)}" for name, value in keys.items())


def quoted(value: object) -> str:
    """A string or list of strings in TOML; text with a backslash as a literal where it can be one."""
    if isinstance(value, str) and "\\" in value and "'" not in value:
        return f"'{value}'"
    return json.dumps(value, ensure_ascii=False)
