"""Times as benchmarks print them, with the units that stand beside them: lines, JSON, and tables. Runs nothing.

A figure counts as a time if a unit of time follows it, or if its name or its column's heading gives one.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.commandtask import MILLISECONDS as UNITS
from tilewright.harness.metrics import Metric, metric
from tilewright.task import Case

MILLISECONDS = {
    word: UNITS[unit]
    for unit, words in {
        "s": "s sec secs second seconds",
        "ms": "ms msec msecs millis millisecond milliseconds",
        "us": "us µs μs usec usecs micros microsecond microseconds",
        "ns": "ns nsec nsecs nanos nanosecond nanoseconds",
    }.items()
    for word in words.split()
}
"""What one of each unit is, in ms; both code points of µ."""
_LONGEST = "|".join(sorted(MILLISECONDS, key=len, reverse=True))
_NUMBER = r"[+-]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_FIGURE = re.compile(
    rf"(?<![\w.+-])(?P<number>{_NUMBER})"
    rf"(?:\s*(?P<unit>{_LONGEST})(?![\w/(^]|\s*[=:])|\s*(?P<each>{_LONGEST})\s*/\s*(?:it|iter|iteration|call|launch|op|run)\b"
    r"|(?P<other>\s*[A-Za-z%µμ][\w/%]*(?!\s*[=:]))?)(?![\w.])",
    re.IGNORECASE,
)
_IN_NAME = re.compile(
    rf"(?:^|[^A-Za-z0-9µμ])({_LONGEST})[\W_]*$|\((?:time\s+)?in\s+({_LONGEST})\)|\[({_LONGEST})\]", re.IGNORECASE
)
_KEY = re.compile(
    r"(?P<key>[\w./µμ]+(?:[ -][\w./µμ]+)*(?:\s*[(\[][^()\[\]]*[)\]])?)[\"']?\s*(?P<sign>[=:]|\bis\b|\btook\b)?\s*$"
)
_SPREADS = re.compile(
    r"\b(std|stddev|stdev|iqr|rel_std|variance|error|err|rounds|iterations|outliers)\b|±|\+/?-\s*$", re.IGNORECASE
)
_STATISTICS = (
    *("median", "p50", "mean", "avg", "average", "min", "best", "max", "worst"),
    *("p20", "p80", "p90", "p95", "p99"),
)
"""Of several statistics of one measurement the first of these counts."""
_ASIDE = re.compile(
    r"\b(?:compil\w*|warm\w*|set\s?up|import\w*|timeout|collected|passed|failed|skipped|teardown)\b|\ds\s+call\s",
    re.IGNORECASE,
)
"""Lines that tell of the run rather than of what it measured."""
_WORD = re.compile(r"(?:^|[\s|,;{])(?P<key>[A-Za-z_]\w*)\s*[=:]\s*(?P<word>[A-Za-z_][\w.-]*)(?=$|[\s|,;}])")
LINE_LIMIT = 4096
LITERAL_LIMIT = 256 * 1024
DEPTH_LIMIT = 24
_SAYING = ("unit", "units")
_PREPOSITIONS = ("in", "at", "is", "of", "took", "takes", "runs", "a", "the")


@dataclass(frozen=True)
class Time:
    """A time that was read: its case, the figure in ms, how it was written with its unit, and the line."""

    case: Case
    milliseconds: float
    written: str
    line: str


def read_times(text: str, unit: str = "") -> list[Time]:
    """The times in a text, in its order; of several statistics of one measurement the median, or what is next to it.
    `unit` is that of figures whose names say a time but no unit; without it they are left out."""
    document = _document(text)
    if isinstance(document, dict | list):
        return list(_nested(document, unit, {}, " ".join(text.split())[:240]))
    found: list[Time] = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        line = lines[number].strip()
        document = _document(line) if line[:1] in ("{", "[") else None
        if isinstance(document, dict | list):
            found += _nested(document, unit, {}, line)
        elif table := _table(lines, number, unit):
            times, number = table
            found += times
            continue
        elif not _ASIDE.search(line):
            found += _on_line(line, unit)
        number += 1
    return found


def unit_of(name: str) -> str:
    """The unit that a name ends in or holds in brackets, as in latency_ms or `time (us)`; empty where it has none."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", name.strip())
    found = _IN_NAME.search(text)
    unit = next(filter(None, found.groups()), "").lower() if found else ""
    if not unit or metric(name) is Metric.OTHER:
        return ""
    plain = re.fullmatch(r"[\w.]+", text)
    if unit == "s" and plain and metric(name) is not Metric.LATENCY:
        return ""  # vit_s is a variant's name
    return unit


def _timed(name: str, unit: str) -> str:
    """The unit of the figures below a name; empty where they are no times, or have no unit."""
    if _SPREADS.search(name.replace("_", " ")):
        return ""
    return unit_of(name) or (unit if metric(name) is Metric.LATENCY else "")


def _number(text: str) -> float | None:
    if not re.fullmatch(_NUMBER, text.strip()):
        return None
    return float(text.replace(",", ""))


def _value(figure: re.Match[str]) -> float:
    return float(figure["number"].replace(",", ""))


# JSON, and Python literals


def _document(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "[") or depth(text) > DEPTH_LIMIT:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    if len(text) > LITERAL_LIMIT or re.search(r"(?:(?:[-+~]|not\b)\s*){8}", text):
        return None
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def depth(text: str) -> int:
    """How deep brackets nest, those within strings included."""
    now = deepest = 0
    for character in text:
        if character in "([{":
            now += 1
            deepest = max(deepest, now)
        elif character in ")]}":
            now -= 1
    return deepest


def _nested(value: Any, unit: str, above: Case, line: str, name: str = "") -> Iterator[Time]:
    if isinstance(value, list):
        many = len(value) > 1
        for number, part in enumerate(value):
            place: Case = {} if not many or (isinstance(part, dict) and _labels(part)) else {"row": number}
            if isinstance(part, dict | list):
                yield from _nested(part, unit, above | place, line, name)
        return
    said = next((str(value[key]).lower() for key in _SAYING if str(value.get(key, "")).lower() in MILLISECONDS), "")
    inner = said or unit
    case = above | _labels(value)
    times: dict[str, tuple[float, str]] = {}
    for key, part in value.items():
        full = f"{name} {key}".strip()
        if isinstance(part, dict | list):
            yield from _nested(part, inner, case | ({"of": full} if isinstance(part, dict) else {}), line, full)
        elif isinstance(part, str) and metric(str(key)) is not Metric.OTHER and not _SPREADS.search(str(key)):
            found = _FIGURE.fullmatch(part.strip())
            if found and found["unit"]:
                times[str(key)] = (_value(found), found["unit"])
        elif isinstance(part, int | float) and not isinstance(part, bool):
            own = _timed(str(key), inner)
            if not own and _statistic(str(key)) < len(_STATISTICS) and metric(name) is not Metric.OTHER:
                own = unit_of(name) or (inner if metric(name) is Metric.LATENCY else said)
            if own:
                times[str(key)] = (float(part), own)
    yield from _chosen(times, case, line)


def _labels(value: Mapping[Any, Any]) -> Case:
    """What tells a row from others: words, flags and whole numbers that are no figures."""
    return {
        str(key): part
        for key, part in value.items()
        if isinstance(part, str | int)
        and key not in _SAYING
        and not (isinstance(part, str) and _FIGURE.fullmatch(part.strip()))
        and _labelling(str(key))
        and _statistic(str(key)) == len(_STATISTICS)
    }


def _labelling(name: str) -> bool:
    """Whether what stands under a name may tell cases apart: it is no quantity."""
    return metric(name) is Metric.UNSAID and not unit_of(name) and not _SPREADS.search(name)


def _statistic(name: str) -> int:
    words = re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    return next((place for place, word in enumerate(_STATISTICS) if word in words), len(_STATISTICS))


def _chosen(times: Mapping[str, tuple[float, str]], case: Case, line: str) -> Iterator[Time]:
    """Of times that are statistics of one measurement the first; others each for itself, by their names."""
    ranked = sorted((name for name in times if _statistic(name) < len(_STATISTICS)), key=_statistic)
    wanted = [name for name in times if name not in ranked[1:]]
    many = len(wanted) > 1
    for name in wanted:
        value, unit = times[name]
        own: Case = {"of": f"{case['of']} {name}" if "of" in case else name} if many or not case else {}
        yield Time(case | own, value * MILLISECONDS[unit.lower()], f"{name} {value:g} {unit}".strip(), line)


# Lines


def _on_line(line: str, unit: str) -> Iterator[Time]:
    """The times of `key: value` and `key = value`, and those that a unit follows; other pairs name the case."""
    times: dict[str, tuple[float, str]] = {}
    places: dict[int, tuple[str, int | str]] = {}
    start = 0
    if len(line) > LINE_LIMIT:
        return
    lead = re.match(r"\W*([^:=|,;]{1,60}?)\s*:\s", line)
    for found in _FIGURE.finditer(line):
        before = re.split(r"[|,;\t]|(?<=\d)\s{2,}", line[max(start, found.start() - 120) : found.start()])[-1]
        start = found.end()
        before = re.sub(r"^.*=\s*[^\s=:]+\s+(?=\S)", "", before)
        key = _KEY.search(before)
        name = " ".join(key["key"].split()) if key else ""
        if _SPREADS.search(before.replace("_", " ")) or found["number"].startswith("-"):
            continue
        own = found["unit"] or found["each"] or ""
        if not own and key and key["sign"] and not found["other"]:
            own = _timed(name, unit)
        if own and (metric(name) is not Metric.OTHER or found["unit"]):
            label = "time" if not name or name.lower() in _PREPOSITIONS else name
            times[label if label not in times else f"{label} {len(times) + 1}"] = (
                _value(found),
                own,
            )
        elif key and key["sign"] and not found["other"] and found["number"].isdecimal() and _labelling(name):
            places[found.start()] = (name, int(found["number"]))
    if not times:
        return
    for word in _WORD.finditer(line):
        if word["key"] not in times and word["key"].lower() not in _SAYING:
            places[word.start("key")] = (word["key"], word["word"])
    case: Case = dict(places[place] for place in sorted(places))
    if lead and not case and lead[1] not in times:
        case = {"of": lead[1]}
    yield from _chosen(times, case, line)


# Tables


def _table(lines: list[str], start: int, unit: str) -> tuple[list[Time], int] | None:
    """The times of a table whose heading is on this line, and where it ends; None where there is none."""
    for split in (_by_bars, _by_commas, _by_gaps, _by_spaces):
        header = split(lines[start])
        if len(header) < 2 or any(_number(cell) is not None for cell in header):
            continue
        common = next(filter(None, (_of_all(name) for name in header)), "")
        if not common and not any(metric(name) is Metric.LATENCY or unit_of(name) for name in header):
            continue
        times: list[Time] = []
        end = start + 1
        while end < len(lines):
            if re.fullmatch(r"[\s|+\-=:─━┼╇╪┿├┤┡┩│┃]+", lines[end]) and lines[end].strip():
                end += 1
                continue
            cells = split(lines[end])
            if len(cells) - len(header) == 1 and split in (_by_spaces, _by_gaps) and cells[0].isdigit():
                cells = cells[1:]  # pandas' index
            if len(cells) != len(header):
                break
            times += _row(header, cells, lines[end].strip(), common, unit)
            end += 1
            if not times:
                break
        if times:
            return times, end
    return None


def _of_all(name: str) -> str:
    """The unit that one heading gives for all columns: `Name (time in us)`."""
    found = re.search(rf"\(?time in ({_LONGEST})\)?", name, re.IGNORECASE)
    return found[1].lower() if found else ""


def _row(header: list[str], cells: list[str], line: str, common: str, unit: str) -> Iterator[Time]:
    times: dict[str, tuple[float, str]] = {}
    case: Case = {}
    for heading, cell in zip(header, cells, strict=True):
        name = re.sub(r"\s*\(time in.*\)", "", heading)
        plain = re.sub(r"\s*\([\d.,]+\)$", "", cell.strip())  # pytest-benchmark's ratio to the best
        written = _FIGURE.fullmatch(plain)
        number = _value(written) if written and not written["other"] else None
        own = (written["unit"] or written["each"] or "") if written else ""
        if not own and number is not None:
            own = _timed(name, unit) or (common if common and _statistic(name) < len(_STATISTICS) else "")
        if own and number is not None and metric(name) is not Metric.OTHER and not _SPREADS.search(name):
            times[name] = (number, own)
        elif plain and not own and _labelling(name) and not re.search(r"\.\d*[1-9]", plain):
            case[name] = plain
    yield from _chosen(times, case, line)


def _by_bars(line: str) -> list[str]:
    if not re.search(r"[|│┃]", line):
        return []
    return [cell.strip() for cell in re.split(r"[|│┃]", line.strip().strip("|│┃"))]


def _by_commas(line: str) -> list[str]:
    return [cell.strip().strip('"') for cell in line.split(",")] if "," in line else []


def _by_gaps(line: str) -> list[str]:
    return [cell for cell in re.split(r"\s{2,}|\t", line.strip()) if cell]


def _by_spaces(line: str) -> list[str]:
    """Cells between single spaces, a unit in brackets with the name before it."""
    return re.sub(r"\s+([(\[][^()\[\]]*[)\]])", r"\1", line.strip()).split()
