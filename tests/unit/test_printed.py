"""Times as benchmarks print them: whatever form and unit they are printed in, the same time is read."""

from __future__ import annotations

import json
import re
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.harness.printed import MILLISECONDS, read_times, unit_of

NAMES = st.sampled_from(["latency", "time", "elapsed", "kernel time", "Runtime", "duration", "fwd_time"])
UNITS = st.sampled_from(sorted(MILLISECONDS))
VALUES = st.floats(1e-3, 9e5).map(lambda value: float(f"{value:.6g}"))
WRITTEN = st.sampled_from(["{}", "{:.6g}", "{:.9f}", "{:.12e}", "{:,.6f}"])

LINES = (
    "{name}: {value} {unit}",
    "{name} = {value}{unit}",
    "{name}={value} {unit}, bandwidth=900.5 GB/s, 512.3 TFLOPS",
    "[PASS] {name} {value} {unit} (1.5x)",
    "gemm | m=256 | {name}: {value} {unit} | tflops=512.5",
    "512.3 TFLOP/s in {value} {unit}",
    "{value} {unit}/iter",
    "{name} ({unit}): {value}",
    "{name} [{unit}] = {value}",
)
PLAIN_LINES = ("{key}_{unit}: {value}", "{key}_{unit}={value} gbps=900.5", "op=gelu {key}_{unit}={value}")
TABLES = (
    "| m | {name} ({unit}) | tflops |\n|---|:--:|---|\n| 256 | {value} | 512.5 |\n",
    "m   {name} ({unit})   GB/s\n256   {value}   900.5\n",
    "gemm-performance:\n       m   {name} ({unit})   TFLOPS\n0  256.0   {value}   512.5\n",
    "│ m │ {name} ({unit}) │\n├───┼───┤\n│ 256 │ {value} │\n",
    "m | {name} | GB/s\n256 | {value} {unit} | 900.5\n",
    "Name ({time_in} {unit})    Min    Mean    Median    OPS\n-----\n"
    "test_a    {value} (1.0)    {value} (1.0)    {value} (1.0)    3.5\n",
)
CSVS = ("m,{name} ({unit}),TFLOPS\n256,{value},512.5\n", "m,{key}_{unit}\n256.0,{value}\n")


def read(text: str) -> list[float]:
    return [time.milliseconds for time in read_times(text)]


@given(NAMES, VALUES, UNITS, WRITTEN, st.sampled_from(LINES + TABLES))
def test_what_is_printed_reads_back(name: str, value: float, unit: str, written: str, form: str) -> None:
    figure = written.format(value)
    text = form.format(name=name, value=figure, unit=unit, time_in="time in")
    assert read(text) == [pytest.approx(float(figure.replace(",", "")) * MILLISECONDS[unit])], text


@given(st.sampled_from(["latency", "time", "elapsed"]), VALUES, UNITS, st.sampled_from(PLAIN_LINES + CSVS))
def test_a_unit_in_a_name_reads_back(key: str, value: float, unit: str, form: str) -> None:
    text = form.format(key=key, name=key, value=repr(value), unit=unit)
    assert read(text) == [pytest.approx(value * MILLISECONDS[unit])], text


@given(VALUES, UNITS, st.integers(0, 4), st.booleans())
def test_json_reads_back_however_it_is_nested(value: float, unit: str, form: int, python: bool) -> None:
    document = [
        {"name": "gemm", f"latency_{unit}": value, "tflops": 512.5},
        {"results": [{"name": "gemm", f"time_{unit}": value}]},
        {"gemm": {f"latency_{unit}": {"mean": value, "std": 0.5, "min": value / 2}}},
        {"op": "gemm", "latency": value, "unit": unit, "gbps": 900.5},
        {"op": "gemm", "latency": f"{value} {unit}", "throughput": "900.5 GB/s"},
    ][form]
    text = repr(document) if python else json.dumps(document)
    for printed in (text, f"starting\n{text}\ndone\n"):
        assert read(printed) == [pytest.approx(value * MILLISECONDS[unit])], printed


RATES = tuple(
    re.findall(r"\S+", "TFLOPS TFLOP/s GFLOPS GB/s GiB/s GBps tokens/s it/s iters/sec MB % x Hz samples/second")
)


@given(VALUES, st.sampled_from(RATES), st.sampled_from(LINES[:7] + PLAIN_LINES + TABLES[:5] + CSVS))
def test_a_rate_is_never_read_as_a_time(value: float, unit: str, form: str) -> None:
    if "iter" in form or "TFLOP/s in" in form:
        return
    text = form.format(name="gemm", key="gemm", value=repr(value), unit=unit)
    assert read(text) == [], text


@given(st.text(max_size=400))
def test_any_other_text_breaks_nothing(text: str) -> None:
    for time in read_times(text, "ms"):
        assert isinstance(time.milliseconds, float)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("triton: 0.5 ms, torch: 0.7 ms", {"triton": 0.5, "torch": 0.7}),
        ("mean 1.2 ms ± 0.1 ms, min 1.1 ms", {"mean": 1.2}),
        ("gelu: mean=1.20 ms std=0.1 ms median=1.1 ms", {"gelu": 1.1}),
        ("3 passed in 0.12s\n0.55s call tests/test_a.py::test_b\ncompile time: 3.5 s\nwarmup 1 s", {}),
        ("latency: 0.5", {}),
    ],
)
def test_which_of_several_times_counts(text: str, expected: dict[str, float]) -> None:
    assert {str(time.case.get("of", time.case)): time.milliseconds for time in read_times(text)} == expected


def test_a_text_that_names_no_unit_takes_the_one_that_is_given() -> None:
    assert [time.milliseconds for time in read_times("latency: 0.5\nbandwidth: 3\n", "us")] == [pytest.approx(5e-4)]


def test_a_time_is_shown_as_it_was_read() -> None:
    [time] = read_times("noise\n  op=gelu m=256 latency = 12.5 µs (3 TFLOPS)\n")
    assert (time.case, time.written) == ({"op": "gelu", "m": 256}, "latency 12.5 µs")
    assert time.line == "op=gelu m=256 latency = 12.5 µs (3 TFLOPS)"


def test_a_units_letter_in_a_variants_name_is_no_unit() -> None:
    assert [unit_of(name) for name in ("vit_s", "time_s", "atoms", "time (us)", "latencyMs", "tokens_per_s")] == [
        "", "s", "", "us", "ms", "",
    ]  # fmt: skip


def test_a_large_output_is_read_in_no_time() -> None:
    for text in ("time b\n" * 20_000, "a b c\n" * 20_000, "[" * 100_000, "x " * 50_000, "time 1" * 20_000):
        started = process_time()
        read_times(text)
        assert process_time() - started < 5, "reading takes more than linear time"
