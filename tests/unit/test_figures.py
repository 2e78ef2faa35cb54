"""Figures of a repository's own benchmarks: what a pattern finds, and everything that is no latency."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.commandtask import Benchmark
from tilewright.harness.figures import read_figures
from tilewright.harness.outcomes import properties_of

GYM = {"mean": 3.7903, "std": 0.0017, "rel_std": 0.0447, "median": 3.78988, "min": 3.78, "max": 3.79, "nrep": 13}
ROW = r"^m=(?P<m>\d+) .*latency_ms=(?P<ms>\S+)"


def benchmark(pattern: str, **keys: Any) -> Benchmark:
    return Benchmark.model_validate({"command": ["pytest", "--junitxml={junit}"], "pattern": pattern} | keys)


def figures(text: str, pattern: str) -> dict[str, float]:
    return {label: figure.ms for label, figure in read_figures([({}, text)], benchmark(pattern)).items()}


def junit(*values: str, name: str = "benchmark") -> str:
    properties = "".join(f"<property name={quoteattr(name)} value={quoteattr(value)}/>" for value in values)
    name = 'classname="t.Test_LN" name="test_perf[cutile-4096]"'
    case = f"<testcase {name}><properties>{properties}</properties></testcase>"
    return f'<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite tests="1">{case}</testsuite></testsuites>'


def test_groups_name_the_case_and_the_latencys_unit() -> None:
    text = "m=256 | tag=ours | latency_ms=0.25 | tflops=1.5\nm=512 | tag=ours | latency_ms=1e-1\n"
    assert figures(text, ROW) == {"m=256": 0.25, "m=512": 0.1}
    for unit, expected in (("s", 250.0), ("ms", 0.25), ("us", 0.25e-3), ("ns", 0.25e-6)):
        assert figures("took 0.25", rf"took (?P<{unit}>\S+)") == {"of=figure": pytest.approx(expected)}


def test_a_case_that_occurs_again_is_numbered() -> None:
    assert figures("a: 1 ms\na: 2 ms\n", r"^(?P<name>\w+): (?P<ms>\S+) ms") == {"name=a": 1.0, "name=a figure=2": 2.0}


def test_what_tests_recorded_is_read_from_their_report() -> None:
    texts = properties_of(junit(repr({"cutile": {"forward": GYM}}), "0.5"), "benchmark")
    read = read_figures(texts, benchmark(r"'cutile'.*?'median': (?P<ms>[0-9.]+)", property="benchmark"))
    assert {label: one.ms for label, one in read.items()} == {"test=t.Test_LN::test_perf[cutile-4096]": 3.78988}
    assert properties_of(junit("1"), "latency") == []


@pytest.mark.parametrize("value", ["0", "-3.5", "nan", "inf", "-inf", "1e999", "0.5ms", "twelve", ""])
def test_what_is_no_positive_number_is_no_latency(value: str) -> None:
    with pytest.raises(ValueError, match=r"is no latency, in 'm=1 latency_ms="):
        figures(f"m=1 latency_ms={value}", r"m=(?P<m>\d+) latency_ms=(?P<ms>\S*)")


def test_where_the_pattern_finds_nothing_what_was_searched_is_shown() -> None:
    with pytest.raises(ValueError, match=r"finds nothing in '3 passed in 0\.12 s'"):
        figures("3 passed\nin 0.12 s", ROW)


@given(st.text())
def test_any_text_gives_figures_or_an_error(text: str) -> None:
    try:
        assert all(value > 0 for value in figures(text, r"(?P<ms>\S+)").values())
    except ValueError:
        pass
