"""The figures of a benchmark command, read from what it wrote: one latency in ms for each case, or an error.

All of it is text that a candidate may have written: it is parsed as data, never run, and no figure is mended.
"""

from __future__ import annotations

import ast
import csv
import io
import itertools
import json
import math
import re
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from tilewright.commandtask import Benchmark, Parser
from tilewright.harness.metrics import Metric, around, metric
from tilewright.harness.outcomes import ReportError, read_report
from tilewright.harness.printed import DEPTH_LIMIT, LITERAL_LIMIT, Time, depth, read_times
from tilewright.task import Case, case_label
from tilewright.text import cut

FIGURES_LIMIT = 20_000
SAMPLES = ("samples", "data", "times", "latencies")
"""Keys under which a benchmark's own samples lie, where it gives no statistic of them."""
_SAYING = ("unit", "units", "metric", "measure")
"""Keys whose text says what the figures beside it are."""
_COMPUTED: dict[str, Callable[[list[float]], float]] = {
    "median": statistics.median,
    "mean": statistics.fmean,
    "min": min,
    "max": max,
}


class FigureError(ValueError):
    """What was read is no latency; the text shows what was parsed, and says what to do."""


@dataclass(frozen=True)
class Figure:
    """One case's latency in ms."""

    case: Case
    milliseconds: float
    line: str = field(default="", compare=False)
    """What it was read from, and `written`: the figure as it stands there."""
    written: str = field(default="", compare=False)

    @property
    def label(self) -> str:
        return case_label(self.case)


@dataclass(frozen=True)
class _NoLatency:
    """Stands where a figure would, for one whose name says that it is a rate, a memory size or the like."""

    name: str


def read_figures(text: str, benchmark: Benchmark) -> list[Figure]:
    """The figures that `text` holds and `select` names, in ms; those whose names say that they are no latencies are
    left out. Raises `FigureError` where there is none, or a wrong one: what is not a positive number is no latency."""
    if benchmark.statistic == "ops" or metric(benchmark.statistic) is Metric.OTHER:
        raise FigureError(f"statistic {benchmark.statistic!r} is no latency: name one that is, such as 'median'")
    if len(text) > LITERAL_LIMIT * 256:
        raise FigureError(f"{len(text) >> 20} MiB of output: no benchmark's figures")
    found: dict[str, Figure] = {}
    others: dict[str, None] = {}
    for case, value, shown in _READERS[benchmark.parser](text, benchmark):
        if isinstance(value, _NoLatency):
            others[value.name] = None
            continue
        if not _selected(case, benchmark):
            continue
        own, written = (value.milliseconds, value.written) if isinstance(value, Time) else (value, "")
        scale = 1.0 if isinstance(value, Time) else benchmark.milliseconds()
        number = _positive(own, case, shown)
        figure = Figure(case, number * scale, shown, written or f"{number:g} {benchmark.unit or 's'}")
        if figure.label in found:
            raise FigureError(f"{figure.label}: two figures for one case, the second in {_shown(shown)}")
        if len(found) == FIGURES_LIMIT:
            raise FigureError(f"more than {FIGURES_LIMIT} figures: narrow the command or select")
        found[figure.label] = figure
    if not found and others:
        raise FigureError(
            f"{', '.join([*others][:4])}: by their names these are no latencies, and nothing else is there to select: "
            f"have the benchmark give {benchmark.unit or 's'} as well, under a name such as latency"
        )
    if not found:
        wanted = f" whose name holds {' and '.join(benchmark.select)}" if benchmark.select else ""
        raise FigureError(f"no figure{wanted} (parser {benchmark.parser}) in {_shown(text)}")
    return list(found.values())


Raw = Iterator[tuple[Case, object, str]]
"""Cases, what stands for their figure, and the text that it was read from."""


def _junit(text: str, benchmark: Benchmark) -> Raw:
    try:
        tests = read_report(text)
    except ReportError as error:
        raise FigureError(str(error)) from None
    for test in tests:
        said = [value for name, value in test.properties if name == benchmark.property]
        for number, value in enumerate(said):
            own = {"record": number + 1} if len(said) > 1 else {}
            for path, figure in _leaves(_literal(value), benchmark, value, _named(benchmark.property)):
                yield {"test": test.id, **({"of": path} if path else {}), **own}, figure, value


def _pytest_benchmark(text: str, benchmark: Benchmark) -> Raw:
    document = _json(text)
    entries = document.get("benchmarks") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise FigureError(f"no list `benchmarks`, which pytest-benchmark writes, in {_shown(text)}")
    for entry in entries:
        shown = json.dumps(entry)[:2000]
        if not isinstance(entry, dict) or not isinstance(entry.get("stats"), dict):
            raise FigureError(f"an entry without stats: {_shown(shown)}")
        for _, figure in _leaves(entry["stats"], benchmark, shown):
            yield {"test": str(entry.get("fullname") or entry.get("name"))}, figure, shown


def _json_text(text: str, benchmark: Benchmark) -> Raw:
    try:
        documents = [_json(text)]
    except FigureError as error:  # printed among other lines: those that are JSON by themselves
        lines = [line.strip() for line in text.splitlines()]
        documents = [_json(line) for line in lines if line[:1] in ("{", "[") and line[-1:] in ("}", "]")]
        if not documents:
            raise error
    many = len(documents) > 1
    for number, document in enumerate(documents):
        for path, figure in _leaves(document, benchmark, json.dumps(document)[:2000]):
            yield {"of": f"[{number}] {path}".strip() if many else path}, figure, json.dumps(document)[:2000]


def _perf_report(text: str, benchmark: Benchmark) -> Raw:
    rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    if len(rows) < 2:
        raise FigureError(f"no row of figures in {_shown(text)}")
    header = [name.strip() for name in rows[0]]
    wanted = {word.casefold() for word in benchmark.select}
    columns = [i for i, name in enumerate(header) if {name.casefold(), _bare(name).casefold()} & wanted]
    if len(columns) < len(wanted):
        raise FigureError(f"the columns are {', '.join(header)}; select names {', '.join(benchmark.select)}")
    if other := next((header[i] for i in columns if metric(header[i]) is Metric.OTHER), ""):
        raise FigureError(f"column {other!r} is a rate or no time at all: have the report give {benchmark.unit}")
    inputs = _inputs(rows, first_figure=min(columns))
    for row in rows[1:]:
        shown = ",".join(row)
        if len(row) != len(header):
            raise FigureError(f"{len(row)} cells for {len(header)} columns in {_shown(shown)}")
        size = {header[i]: row[i].strip() for i in inputs}
        for i in columns:
            yield {**size, "of": header[i]}, _number(row[i], shown), shown


def _inputs(rows: list[list[str]], first_figure: int) -> list[int]:
    """The columns that hold sizes and flags: those before the first with fractions, which is some provider's."""

    def whole(i: int) -> bool:
        cells = [row[i].strip() for row in rows[1:] if i < len(row)]
        return all(not re.search(r"\d\.\d*[1-9]|[eE]-|^nan$", cell) for cell in cells)

    return list(itertools.takewhile(whole, range(first_figure)))


def _bare(name: str) -> str:
    """A column's name without its unit, as in `Triton (ms)`."""
    return re.sub(r"\s*\([^)]*\)$", "", name)


def _matched(text: str, benchmark: Benchmark) -> Raw:
    counts: dict[str, int] = {}
    for match in re.finditer(benchmark.pattern, text, re.MULTILINE):
        said = match["value"]
        names = {name: value for name, value in match.groupdict().items() if name != "value" and value is not None}
        literal = _literal(said) if said.lstrip()[:1] in ("{", "[") else _number(said, match[0])
        start, end = match.span("value")
        beside = around(text[max(start - 80, 0) : start], text[end : end + 80])
        other = re.split(r"[|,;\n]", text[max(start - 80, 0) : start])[-1] if beside is Metric.OTHER else ""
        for path, figure in _leaves(literal, benchmark, match[0], other.strip(" =:\t")):
            case: Case = {**names, **({"of": path} if path else {})} or {"of": "figure"}
            counts[case_label(case)] = count = counts.get(case_label(case), 0) + 1
            yield case | ({"line": count} if count > 1 else {}), figure, match[0]


def _times(text: str, benchmark: Benchmark) -> Raw:
    counts: dict[str, int] = {}
    for time in read_times(text, benchmark.unit or ""):
        label = case_label(time.case)
        counts[label] = count = counts.get(label, 0) + 1
        yield time.case | ({"line": count} if count > 1 else {}), time, time.line


_READERS: dict[Parser, Callable[[str, Benchmark], Raw]] = {
    Parser.JUNIT: _junit,
    Parser.PYTEST_BENCHMARK: _pytest_benchmark,
    Parser.JSON: _json_text,
    Parser.CSV: _perf_report,
    Parser.PRINTED: _times,
    Parser.REGEX: _matched,
}


def _leaves(value: object, benchmark: Benchmark, shown: str, other: str = "") -> Iterator[tuple[str, object]]:
    """The figures in a nest of dicts and lists, with the path to each: a plain number, or a dict that has the
    statistic or samples to take it from. Raises `FigureError` where a dict has figures, but not that one.

    `other` names what the nest holds where that is no latency; a name further in may say otherwise.
    """
    if isinstance(value, dict):
        said = [_named(part, other) for key, part in value.items() if key in _SAYING and isinstance(part, str)]
        other = said[0] if said else other
        if own := _own_figure(value, benchmark, shown, other):
            yield "", own[0]
            return
        inner = _preferred({str(key): part for key, part in value.items() if isinstance(part, dict | list)})
        if not inner and other:
            yield "", _NoLatency(other)
        elif not inner:
            names = ", ".join(map(str, value)) or "nothing"
            raise FigureError(f"no statistic {benchmark.statistic!r} ({names} instead) in {_shown(shown)}")
        for key, part in inner.items():
            for path, figure in _leaves(part, benchmark, shown, _named(key, other)):
                yield f"{key} {path}".strip(), figure
    elif isinstance(value, list):
        for number, part in enumerate(value):
            named = [text for text in part.values() if isinstance(text, str)] if isinstance(part, dict) else []
            for path, figure in _leaves(part, benchmark, shown, other):
                yield " ".join(filter(None, [*named, f"[{number}]", path])), figure
    else:
        yield "", _NoLatency(other) if other else value


def _own_figure(value: dict[Any, Any], benchmark: Benchmark, shown: str, other: str) -> list[object]:
    """The one figure that a dict itself gives, by the statistic or its samples; empty where it gives none."""
    if benchmark.statistic in value:
        other = _named(benchmark.statistic, other)
        return [_NoLatency(other) if other else value[benchmark.statistic]]
    for key in SAMPLES:
        if benchmark.statistic in _COMPUTED and isinstance(value.get(key), list) and value[key]:
            if other := _named(key, other):
                return [_NoLatency(other)]
            samples = [_positive(one, {"of": key}, shown) for one in value[key]]
            return [_COMPUTED[benchmark.statistic](samples)]
    return []


def _named(key: str, inherited: str = "") -> str:
    """`key` where it names what is no latency, nothing where it names a latency, else what was `inherited`."""
    said = metric(key)
    return key if said is Metric.OTHER else "" if said is Metric.LATENCY else inherited


def _preferred(inner: dict[str, Any]) -> dict[str, Any]:
    """Without what lies beside a block that is called a latency, and is called none itself: sizes, other metrics."""
    if not any(metric(key) is Metric.LATENCY for key in inner):
        return inner
    return {key: part for key, part in inner.items() if metric(key) is not Metric.UNSAID or not _flat(part)}


def _flat(part: Any) -> bool:
    parts = [one for key, one in part.items() if key not in SAMPLES] if isinstance(part, dict) else part
    return not any(isinstance(one, dict | list) for one in parts)


def _selected(case: Case, benchmark: Benchmark) -> bool:
    if benchmark.parser is Parser.CSV:
        return True  # it has chosen the columns
    words = {word for part in case.values() for word in re.split(r"[^a-z0-9_.+]+", str(part).casefold())}
    return all(word.casefold() in words for word in benchmark.select)


def _positive(value: object, case: Case, shown: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FigureError(f"{case_label(case)}: {value!r} is no number, in {_shown(shown)}")
    if not math.isfinite(value) or value <= 0:
        raise FigureError(f"{case_label(case)}: {value!r} is no latency, in {_shown(shown)}")
    return float(value)


def _number(text: str, shown: str) -> float:
    if not re.fullmatch(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", text):
        raise FigureError(f"{text.strip()!r} is no number, in {_shown(shown)}")
    return float(text)


def _literal(text: str) -> object:
    """A Python literal or JSON. Nothing is run, and nothing deep enough to break the parser gets there."""
    if len(text) > LITERAL_LIMIT:
        raise FigureError(f"{len(text)} characters are too many for a figure: {_shown(text)}")
    if depth(text) > DEPTH_LIMIT or re.search(r"(?:(?:[-+~]|not\b)\s*){8}", text):
        raise FigureError(f"nested more than {DEPTH_LIMIT} deep: {_shown(text)}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Dict):
                keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
                if len(set(keys)) != len(node.keys):
                    raise FigureError(f"a key twice, or none: {_shown(text)}")
        return ast.literal_eval(tree)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        if isinstance(error, FigureError):
            raise
    return _json(text)


def _json(text: str) -> Any:
    def refuse(said: str) -> NoReturn:
        raise FigureError(f"{said} is no latency, in {_shown(text)}")

    def unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        listed = list(pairs)
        if len({key for key, _ in listed}) != len(listed):
            raise FigureError(f"a key twice: {_shown(json.dumps([key for key, _ in listed]))}")
        return dict(listed)

    try:
        return json.loads(text, parse_constant=refuse, object_pairs_hook=unique)
    except FigureError:
        raise
    except (ValueError, RecursionError) as error:
        raise FigureError(f"neither a Python literal nor JSON ({error}): {_shown(text)}") from None


def _shown(text: str) -> str:
    return repr(cut(" ".join(text.split()), 240)) if text.strip() else "an empty text"
