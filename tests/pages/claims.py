"""Every figure about performance has a note in docs/evidence.md, which gives what the text says.

A note is an `evidence` block, with one of
    measured FILE: expr; expr      recomputed from raw data in benchmarks/evidence/
    computed: expr; expr           evaluated: spec() and limits() give data sheets, rules() the thresholds of the loop,
                                   code() the constants of a module of tilewright
    published SOURCE: 1.2, 3.4     what others say, and who

A note without a title is for the figures of its section. Another page cites it by a link to the section:
[evidence](docs/evidence.md#the-section). A note with a title stands in the section of a page for agents. It is for the
figures of that page that cite the footnote with this name. The footnote says where and when they were measured.
"""

from __future__ import annotations

import gzip
import importlib
import json
import math
import re
import statistics
from collections.abc import Iterator
from functools import cache
from typing import Any

from scipy.stats import t as student

from tests.pages.page import CITED, CODE, ROOT, Block, Page, Problem, anchor, pages, read
from tilewright.evaluation.results import BenchmarkResult, Status
from tilewright.gpu.specs import SM_LIMITS, spec_by_arch, spec_by_name
from tilewright.policy import Ratio, product
from tilewright.rules import Rules

NUMBER = r"(?<![\w.^])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
RATES = (
    r"[TGM]B/s|[TG]FLOP(?:/s|S)|flops per byte|KiB|MiB|GiB|GB|ns|[uµμ]s|ms|s|seconds?|minutes?|hours?|%|per ?cent|"
    r"times|-?fold|×"
)
COUNTS = r"bytes|instructions|registers|opcodes"
OPCODE = re.compile(r"[A-Z][A-Z0-9]{2,}(?:\.[A-Z0-9]+)*")
JOIN = r"\s*(?:to|and|or|against|instead of|,|/|-)\s*"
CLAIM = re.compile(rf"({NUMBER}(?:{JOIN}{NUMBER})*)(?:\s?({RATES})(?!\w)|([xX])(?!\w)|\s({COUNTS})\b)")
UNIT_HEAD = re.compile(rf"(?<!\w)(?:{RATES}|{COUNTS})(?!\w)|^ n $")
PRECISE = re.compile(rf"(?<!tileiras )(?<!cuda-tile )(?<!CUDA )(?<!Triton )(?<!Python )({NUMBER})(?![.\d])")
INTEGER = re.compile(rf"(?<!RTX )({NUMBER})(?!\.?\d)(?!-?[A-Za-z])")
BARE = re.compile(r"(?:[\s()+/,-]|\b(?:to|and|or|against|instead|of)\b)*")
NO_RESULT = re.compile(
    r"(?<!\d )\(\d+(?:, \d+)*,?\)|\{[^}]*\}|(?<![\w.])\d+(?:x\d+)+(?!\w)|(?<![\w.])\d+[²³]|\b[A-Z] ?= ?\d+|"
    r"\b20\d\d-\d\d-\d\d\b|\b(?:Jan|Feb|Mar|Apr|May|June|July|Aug|Sep|Oct|Nov|Dec)[a-z]* 20\d\d\b"
)
"""Shapes, such as (64, 64) and 128x256, sets of settings, sizes, such as N = 4096, and dates."""
EVIDENCE = ROOT / "benchmarks" / "evidence"
CLAIMS = ROOT / "docs" / "evidence.md"
LINKED = re.compile(r"\]\(((?:[\w./-]*/)?evidence\.md)?#([\w-]+)\)")


class Node(dict[str, Any]):
    """A JSON object whose fields are attributes too."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


@cache
def _load(name: str) -> Any:
    path = EVIDENCE / name
    opened = gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()
    if ".jsonl" in name:
        return [json.loads(line, object_hook=Node)["data"] for line in opened.decode().splitlines()]
    return json.loads(opened, object_hook=Node)


class Evidence:
    """What an expression over a file of evidence can use."""

    def __init__(self, name: str) -> None:
        self.data = _load(name)

    def names(self) -> dict[str, Any]:
        names = {"data": self.data, "one": self.one, "last": self.last, "gains": self.gains, "spent": self.spent}
        names |= {"product": self.product}
        return names | {
            "all": all,
            "len": len,
            "max": max,
            "min": min,
            "sorted": sorted,
            "sum": sum,
            "median": statistics.median,
        }

    def _rows(self) -> list[Any]:
        if isinstance(self.data, list):
            return self.data
        return next(value for value in self.data.values() if isinstance(value, list) and len(value) > 3)

    def one(self, **wanted: Any) -> Any:
        """The one record with these fields."""
        (found,) = [row for row in self._rows() if all(row.get(key) == value for key, value in wanted.items())]
        return found

    def gains(self, **wanted: Any) -> list[float]:
        """What the pairs of times of these records give, one record after the other: the mean gain and the ends of its
        95% interval, in percent, or as a factor from a doubling on."""
        found: list[float] = []
        for row in self._rows():
            if all(row.get(key) == value for key, value in wanted.items()):
                found += _gain(row["times"])
        if not found:
            raise ValueError("no such record")
        return found

    def last(self, iteration: int) -> Any:
        """The result of the last benchmark of a session's iteration."""
        rows = self._rows()
        end = next(i for i, row in enumerate(rows) if row["kind"] == "row" and row["iteration"] == iteration)
        measured = next(row for row in reversed(rows[:end]) if row["kind"] == "measured")
        return measured["again"] or measured["first"]

    def spent(self, iteration: int) -> float:
        """Seconds of the evaluator from the edit of a session's iteration to its verdict."""
        rows = [row for row in self._rows() if row["kind"] in ("checked", "measured", "row")]
        ends = [i for i, row in enumerate(rows) if row["kind"] == "row"]
        runs = rows[ends[iteration - 1] + 1 : ends[iteration]]
        results = [row.get(name) for row in runs for name in ("result", "first", "again")]
        return sum(result["seconds"] for result in results if result)

    def product(self) -> Ratio:
        """What the keeps of a session gain together."""
        kept = [row["iteration"] for row in self._rows() if row["kind"] == "row" and row["commit"]]
        keeps = [dict(self.last(number)) | {"status": Status.PASSED} for number in kept]
        return product([BenchmarkResult.model_construct(**keep) for keep in keeps])


def speedup(times: list[list[float]]) -> list[float]:
    """Before over after, by the mean of the pairs' logarithms, with Student's interval."""
    logs = [math.log(before / after) for before, after in times]
    mean, error = statistics.fmean(logs), statistics.stdev(logs) / math.sqrt(len(logs))
    half = float(student.ppf(0.975, len(logs) - 1)) * error
    return [math.exp(mean), math.exp(mean - half), math.exp(mean + half)]


def _gain(times: list[list[float]]) -> list[float]:
    found = speedup(times)
    return found if found[0] >= 2 else [100 * (one - 1) for one in found]


def said(times: list[list[float]]) -> str:
    """The gain as `benchmarks/advice/playbook.py` writes it."""
    form = "{:.2f}x ({:.2f} to {:.2f})" if speedup(times)[0] >= 2 else "{:+.1f}% ({:+.1f} to {:+.1f})"
    return form.format(*_gain(times))


def _spec(name: str) -> Any:
    return spec_by_name(name) or spec_by_arch(name)


def _code(module: str) -> Any:
    return importlib.import_module(f"tilewright.{module}")


COMPUTING = {
    "code": _code,
    "spec": _spec,
    "limits": SM_LIMITS.__getitem__,
    "rules": Rules,
    "math": math,
    "round": round,
}


def values(note: str) -> list[float]:
    """The figures that a note gives. Raises ValueError where it is none."""
    kind, _, rest = note.partition(" ")
    if kind == "measured":
        name, _, query = rest.partition(": ")
        if not (EVIDENCE / name).is_file():
            raise ValueError(f"no benchmarks/evidence/{name}")
        return _evaluated(query, Evidence(name).names())
    if kind == "computed:":
        return _evaluated(rest, COMPUTING)
    if kind == "published":
        source, _, figures = rest.rpartition(": ")
        if len(source) < 12:
            raise ValueError("published by whom? write `published SOURCE: figures`")
        return [_number(text) for text in re.findall(NUMBER, figures)]
    raise ValueError("a note begins with `measured FILE:`, `computed:` or `published SOURCE:`")


def _evaluated(query: str, names: dict[str, Any]) -> list[float]:
    found: list[float] = []
    for text in query.strip().strip("`").split("; "):
        try:
            given = eval(text, {"__builtins__": {}} | names)
            found += given if isinstance(given, list) else [float(given)]
        except Exception as error:
            raise ValueError(f"{text}: {type(error).__name__}: {error}") from None
    return found


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def supported(text: str, given: list[float]) -> bool:
    """Whether one of the figures, rounded as `text` is, is what it says; of either sign where it has none."""
    decimals = len(text.partition(".")[2])
    step = 10.0**-decimals
    if text[0] in "+-":
        zero = abs(_number(text)) < step  # -0.0 and +0.0 round alike
        return any(abs((abs(value) if zero else value) - _number(text)) <= step / 2 * (1 + 1e-6) for value in given)
    return any(abs(abs(value) - _number(text)) <= step / 2 * (1 + 1e-6) for value in given)


def figures(block: Block) -> Iterator[str]:
    """The numbers of a block that claim performance: numbers with such a unit, numbers in a column that has one,
    results in the cells of a table, and numbers with decimals."""
    plain = _plain(block.text)
    if not block.text.startswith("|") or not block.head:
        yield from _claimed(plain, {})
        return
    heads = _plain(block.head).split("|")
    for number, cell in enumerate(plain.split("|")):
        if number < len(heads) and UNIT_HEAD.search(heads[number]):
            yield from re.findall(NUMBER, cell)
        else:
            yield from _claimed(cell, _results(cell) if number > 1 else {})  # the first cell names the row


def _results(cell: str) -> dict[int, str]:
    """The integers of a cell that are results, by their place. In a cell without words, all of them. In a cell with
    words, integers from 100 on that are no power of two: the others are settings and tile extents."""
    text = NO_RESULT.sub(lambda match: "·" * len(match[0]), cell)
    found = {match.start(1): match[1] for match in INTEGER.finditer(text)}
    if BARE.fullmatch(re.sub(NUMBER, "", text)):
        return found
    return {place: number for place, number in found.items() if _number(number) >= 100 and not _power_of_two(number)}


def _power_of_two(number: str) -> bool:
    return _number(number).is_integer() and int(_number(number)).bit_count() == 1


def _claimed(text: str, results: dict[int, str]) -> list[str]:
    """Figures in running text, and `results`. Small counts of bytes, registers, instructions and opcodes are rules."""
    found = dict(results)
    for match in CLAIM.finditer(text):
        for number in re.finditer(NUMBER, match[1]):
            if match[2] or match[3] or _number(number[0]) >= 100:
                found[match.start(1) + number.start()] = number[0]
    for match in PRECISE.finditer(text):
        if "." in match[1] or "," in match[1]:
            found[match.start(1)] = match[1]
    return [_sign(text, place) + found[place] for place in sorted(found)]


def _sign(text: str, start: int) -> str:
    """The sign before a number; a hyphen between two things is none."""
    signed = re.search(r"(?:^|[\s(|:])([+-])$", text[:start])
    return signed[1] if signed else ""


def _plain(text: str) -> str:
    text = CODE.sub(lambda code: "opcodes" if OPCODE.fullmatch(code[2]) else "···", text.replace("\n", " "))
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return CITED.sub("", text)


def _cited(block: Block, page: Page, evidence: Page) -> list[str]:
    """The notes that a block cites: by footnote, by standing in their section, by a link to their section."""
    names = CITED.findall(block.text + block.head) + page.sections.get(block.section, [])
    for other, section in LINKED.findall(block.text + block.head):
        if other or page.path == evidence.path:
            names += evidence.sections.get(section, [])
    return names


@cache
def recorded() -> Page:
    """docs/evidence.md."""
    return read(CLAIMS)


def note_of(name: str, page: Page, evidence: Page) -> str:
    """The note in `evidence` that the page cites as `name`. Raises ValueError where there is none."""
    place = name if "." in name else f"{anchor(page.name)}.{name}"
    if place not in evidence.notes:
        raise ValueError("docs/evidence.md does not say what gives it")
    return evidence.notes[place][1]


def _unused(page: Page, evidence: Page, cited: set[str]) -> Iterator[Problem]:
    """Notes for this page, on it and in `evidence`, that nothing cites."""
    others = {anchor(other.name) for other in pages()} if page.path == evidence.path else set()
    for name, (line, _) in page.notes.items():
        if name not in cited and name.rpartition(".")[0] not in others:
            yield page.problem(line, f"[^{name}] is never cited")
    section = anchor(page.name)
    for place in evidence.sections.get(section, []):
        if place.removeprefix(f"{section}.") not in page.notes:
            yield evidence.problem(evidence.notes[place][0], f"{page.name} has no footnote of this name")


class _Order:
    """What the footnotes of a paragraph or of a table give. The rows of a table take a footnote's figures in its order,
    so that two rows that are swapped are noticed."""

    def __init__(self, given: dict[str, list[float]]) -> None:
        self._given = given
        self._past = dict.fromkeys(given, 0)

    def supports(self, text: str, names: list[str], in_order: bool) -> bool:
        """Whether one of the footnotes `names` gives the figure `text`, in a table after the one that was used last."""
        for name in names:
            values = self._given.get(name, [])
            for place in range(self._past[name] if in_order else 0, len(values)):
                if supported(text, values[place : place + 1]):
                    self._past[name] = place
                    return True
        return False


def check(page: Page, evidence: Page | None = None) -> tuple[int, list[Problem]]:
    """How many figures the page claims, and those that nothing in `evidence` supports, which is docs/evidence.md."""
    evidence = evidence or recorded()
    problems, count = [], 0
    cited = {name for block in page.blocks for name in _cited(block, page, evidence)}
    given: dict[str, list[float]] = {}
    for name in sorted({*page.notes} | {name for name in cited if name in evidence.notes}):
        try:
            given[name] = values(note_of(name, page, evidence))
        except ValueError as error:
            given[name] = []
            problems.append(page.problem(page.notes.get(name, (1, ""))[0], f"[^{name}]: {error}"))
    order, head = _Order(given), ""
    for block in page.blocks:
        names = _cited(block, page, evidence)
        problems += [
            page.problem(block.line, f"[^{name}] is not defined on this page") for name in names if name not in given
        ]
        if not block.head or block.head != head:
            order, head = _Order(given), block.head
        for text in figures(block):
            count += 1
            if not order.supports(text, names, bool(head)):
                says = ", ".join(f"{value:g}" for name in names for value in given.get(name, [])) or "nothing"
                text = f"{text} has no evidence (its notes give{' in this order' if head else ''} {says})"
                problems.append(page.problem(block.line, text))
    return count, [*problems, *_unused(page, evidence, cited)]
