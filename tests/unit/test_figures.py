"""Figures of a repository's own benchmarks: each format that is read, and everything that is no latency."""

from __future__ import annotations

import json
from typing import Any
from xml.sax.saxutils import quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.commandtask import Benchmark
from tilewright.harness.figures import FigureError, read_figures
from tilewright.harness.metrics import metric

GYM = {"mean": 3.7903, "std": 0.0017, "rel_std": 0.0447, "median": 3.78988, "min": 3.78, "max": 3.79, "nrep": 13}


def benchmark(parser: str, **keys: Any) -> Benchmark:
    command = ["python", "-m", "pytest", "--junitxml={junit}", *(["{out}"] if parser == "pytest-benchmark" else [])]
    unit = {} if parser == "pytest-benchmark" else {"unit": "ms"}
    return Benchmark.model_validate({"command": command, "parser": parser} | unit | keys)


def figures(text: str, **keys: Any) -> dict[str, float]:
    return {figure.label: figure.milliseconds for figure in read_figures(text, benchmark(**keys))}


def junit(*values: str, name: str = "benchmark") -> str:
    properties = "".join(f"<property name={quoteattr(name)} value={quoteattr(value)}/>" for value in values)
    name = 'classname="t.Test_LN" name="test_perf[cutile-4096]"'
    case = f"<testcase {name}><properties>{properties}</properties></testcase>"
    return f'<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite tests="1">{case}</testsuite></testsuites>'


def test_a_junit_property_holds_a_python_dict_for_each_framework() -> None:
    text = junit(repr({"cutile": {"forward": GYM, "backward": GYM | {"median": 7.5}}}))
    test = "test=t.Test_LN::test_perf[cutile-4096]"
    assert figures(text, parser="junit-property") == {
        f"{test} of=cutile forward": 3.78988,
        f"{test} of=cutile backward": 7.5,
    }
    assert figures(text, parser="junit-property", statistic="mean", unit="us", select=["forward"]) == {
        f"{test} of=cutile forward": pytest.approx(3.7903e-3)
    }


def test_a_junit_property_may_be_json_a_plain_number_or_recorded_more_than_once() -> None:
    assert figures(junit(json.dumps({"cutile": GYM})), parser="junit-property") == {
        "test=t.Test_LN::test_perf[cutile-4096] of=cutile": 3.78988
    }
    assert [*figures(junit("0.25"), parser="junit-property").values()] == [0.25]
    assert figures(junit("0.25", "0.5"), parser="junit-property") == {
        "test=t.Test_LN::test_perf[cutile-4096] record=1": 0.25,
        "test=t.Test_LN::test_perf[cutile-4096] record=2": 0.5,
    }
    assert [*figures(junit("3", name="latency"), parser="junit-property", property="latency").values()] == [3.0]


def test_select_takes_whole_words_only() -> None:
    text = junit(repr({"cutile": {"forward": GYM}, "cutile_old": {"forward": GYM | {"median": 9.0}}}))
    with pytest.raises(FigureError, match="no figure whose name holds cute"):
        figures(text, parser="junit-property", select=["cute"])
    report = junit(repr({"a": GYM, "ab": GYM | {"median": 9.0}})).replace("cutile-4096", "x")
    assert [*figures(report, parser="junit-property", select=["A"]).values()] == [3.78988]


def test_pytest_benchmark_writes_seconds() -> None:
    stats = {"min": 1e-3, "max": 3e-3, "mean": 2e-3, "median": 1.5e-3, "rounds": 5}
    text = json.dumps({"machine_info": {}, "benchmarks": [{"name": "b", "fullname": "t.py::b[1]", "stats": stats}]})
    assert figures(text, parser="pytest-benchmark") == {"test=t.py::b[1]": pytest.approx(1.5)}
    raw = json.dumps({"benchmarks": [{"name": "b", "stats": {"data": [3e-3, 1e-3, 2e-3]}}]})
    assert figures(raw, parser="pytest-benchmark") == {"test=b": pytest.approx(2.0)}
    with pytest.raises(FigureError, match="no list `benchmarks`"):
        figures("[]", parser="pytest-benchmark")


def test_json_is_a_document_or_a_line_among_others() -> None:
    assert figures('{"gelu": {"median": 0.5}, "note": "x"}', parser="json") == {"of=gelu": 0.5}
    printed = 'warming up [3]\n{"gelu": {"median": 0.5}}\ndone\n'
    assert figures(printed, parser="json") == {"of=gelu": 0.5}
    rows = json.dumps([{"op": "gelu", "n": 3, "latency_ms": 0.5}, {"op": "relu", "n": 4, "latency_ms": 0.25}])
    assert figures(rows, parser="json", statistic="latency_ms") == {"of=gelu [0]": 0.5, "of=relu [1]": 0.25}
    lines = '{"median": 1.0}\n{"median": 2.0}\n'
    assert figures(lines, parser="json") == {"of=[0]": 1.0, "of=[1]": 2.0}


def test_samples_give_the_statistic_that_is_missing() -> None:
    assert figures('{"gelu": {"times": [3, 1, 2]}}', parser="json") == {"of=gelu": 2.0}
    assert figures('{"gelu": {"samples": [3, 1, 2]}}', parser="json", statistic="min") == {"of=gelu": 1.0}
    with pytest.raises(FigureError, match="-1 is no latency"):
        figures('{"gelu": {"times": [3, -1, 2]}}', parser="json")


def test_a_perf_report_has_sizes_and_a_column_for_each_provider() -> None:
    text = "M,N,Triton,Torch\n256.000000,1024.0,0.010240,0.020480\n512.000000,1024.0,0.0125,0.03\n"
    keys = {"parser": "perf-report", "file": "ln.csv"}
    assert figures(text, select=["Triton"], **keys) == {
        "M=256.000000 N=1024.0 of=Triton": 0.01024,
        "M=512.000000 N=1024.0 of=Triton": 0.0125,
    }
    assert figures(text, select=["torch"], **keys) == {
        "M=256.000000 N=1024.0 of=Torch": 0.02048,
        "M=512.000000 N=1024.0 of=Torch": 0.03,
    }
    assert figures("N,Triton (ms)\n8,0.5\n", select=["Triton"], **keys) == {"N=8 of=Triton (ms)": 0.5}
    with pytest.raises(FigureError, match=r"is a rate or no time at all: have the report give ms"):
        figures("N,Triton (GB/s)\n8,500.5\n", select=["Triton"], **keys)
    with pytest.raises(FigureError, match="the columns are N, Triton; select names CUDA"):
        figures("N,Triton\n8,0.5\n", select=["CUDA"], **keys)
    with pytest.raises(FigureError, match="'nan' is no number"):
        figures("N,Triton\n8,nan\n", select=["Triton"], **keys)
    with pytest.raises(FigureError, match="3 cells for 2 columns"):
        figures("N,Triton\n8,0.5,1\n", select=["Triton"], **keys)


RATED = {"tflops": {"median": 512.3, "mean": 512.0}, "latency": {"median": 0.25, "mean": 0.5}}
RATE = {"tflops": {"median": 512.3}}


def test_rates_beside_latencies_are_left_out() -> None:
    assert figures(json.dumps(RATED), parser="json") == {"of=latency": 0.25}
    assert [*figures(junit(repr({"cutile": RATED})), parser="junit-property").values()] == [0.25]
    assert [*figures(f"triton: {RATED!r}\n", parser="regex", pattern=r"^(?P<by>\w+): (?P<value>.*)$").values()] == [
        0.25
    ]
    assert [*figures(junit(repr(RATE), repr(GYM)), parser="junit-property").values()] == [3.78988]
    others = {name: {"median": 9.0} for name in ("speedup", "max_error", "peakMemMb", "grid", "GB/s")} | {
        "shape": [8, 8]
    }
    row = {"name": "gemm", "latency_ms": {"median": 0.5}} | others
    assert figures(json.dumps([row]), parser="json") == {"of=gemm [0] latency_ms": 0.5}
    metrics = [{"metric": "bandwidth", "unit": "GB/s", "median": 900}, {"metric": "time", "median": 0.5}]
    assert [*figures(json.dumps(metrics), parser="json").values()] == [0.5]
    kernel = {"copy_bandwidth": {"latency_ms": {"median": 0.5}}}
    assert figures(json.dumps(kernel), parser="json") == {"of=copy_bandwidth latency_ms": 0.5}


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (json.dumps(RATE), {"parser": "json"}),
        (json.dumps([{"name": "gemm", "throughput": {"median": 3.0}}]), {"parser": "json"}),
        (json.dumps({"bandwidth": [500.0, 510.0]}), {"parser": "json"}),
        (json.dumps({"GFLOP/s": {"samples": [500.0, 510.0]}}), {"parser": "json"}),
        (json.dumps({"gelu": {"tokens_per_second": {"median": 3.0}}}), {"parser": "json", "select": ["gelu"]}),
        (junit(repr({"cutile": RATE})), {"parser": "junit-property"}),
        (junit("512.3", name="tflops"), {"parser": "junit-property", "property": "tflops"}),
        (f"triton: {RATE!r}\n", {"parser": "regex", "pattern": r"^(?P<by>\w+): (?P<value>.*)$"}),
        ("TFLOPS: {'median': 512.3}\n", {"parser": "regex", "pattern": r"^(?P<by>\w+): (?P<value>.*)$"}),
        ("n=8 512.3 TFLOP/s\n", {"parser": "regex", "pattern": r"n=(?P<n>\d+) (?P<value>[\d.]+)"}),
        ("n=8, GB/s: 512.3, ms: 2\n", {"parser": "regex", "pattern": r"n=(?P<n>\d+), GB/s: (?P<value>[\d.]+)"}),
    ],
)
def test_rates_alone_are_no_figures(text: str, keys: dict[str, Any]) -> None:
    with pytest.raises(FigureError, match=r"no latencies.*: have the benchmark give ms as well"):
        figures(text, **keys)


@pytest.mark.parametrize("statistic", ["tflops", "ops", "throughput"])
def test_a_rate_is_no_statistic(statistic: str) -> None:
    with pytest.raises(FigureError, match="is no latency: name one that is"):
        figures(json.dumps({"gemm": {statistic: 3.0}}), parser="json", statistic=statistic)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (
            "tflops TFLOPS TFLOPs tflops_mean gbps bandwidth_gb_per_s GB/s achieved_GB/s memory_mb speedup_vs_torch",
            "other",
        ),
        (
            "error max_abs_error memory peakMemory throughput tokens/s iters_per_sec speedup_time utilization_pct",
            "other",
        ),
        (
            "latency latency_ms latencyMs time(us) fwd_time time_ms_p50 ms_per_call elapsed duration_s median_ms",
            "latency",
        ),
        (
            "cutile forward memory_efficient time_mix throughput_mode timestep_embedding mean rms us_ops vit_s s b",
            "unsaid",
        ),
    ],
)
def test_names_say_what_is_measured(names: str, said: str) -> None:
    assert {name: metric(name).value for name in names.split()} == dict.fromkeys(names.split(), said)


def test_a_unit_after_a_printed_figure_speaks_first() -> None:
    text = "bandwidth: 0.5 ms\nlatency=0.25 bandwidth=900\nrate: 0.125 s\n"
    assert [*figures(text, parser="regex", pattern=r"[:=] ?(?P<value>0\.\d+)").values()] == [0.5, 0.25, 0.125]


SEED_PATTERN = r"^(?P<framework>\w+): (?P<value>\{.*\}) ms$"


def test_a_printed_line_in_a_kernel_librarys_form() -> None:
    text = f"collected 2 items\n\nCutile: { ({'forward': GYM | {'peak_mem_mb': 913}})!r} ms\nPASSED\n"
    assert figures(text, parser="regex", pattern=SEED_PATTERN) == {"framework=Cutile of=forward": 3.78988}
    twice = text + text.replace("3.78988", "1.5")
    assert figures(twice, parser="regex", pattern=SEED_PATTERN) == {
        "framework=Cutile of=forward": 3.78988,
        "framework=Cutile of=forward line=2": 1.5,
    }


def test_a_log_file_with_a_row_for_each_shape() -> None:
    log = "op=softmax | m=256 | n=64 | dtype=float16 | latency_ms=0.0123 | tflops=1.5\n"
    pattern = r"^op=(?P<op>\w+) \| m=(?P<m>\d+) .*latency_ms=(?P<value>[0-9.e-]+)"
    assert figures(log, parser="regex", pattern=pattern, file="profile_run.log") == {"op=softmax m=256": 0.0123}
    table = "## softmax\n| m | n | tag | latency(ms) |\n|---|---|---|---|\n| 256 | 64 | ours | 0.0123 |\n"
    cells = r"^\| (?P<m>\d+) \| (?P<n>\d+) \| ours \| (?P<value>\S+) \|"
    assert figures(table, parser="regex", pattern=cells, file="profile_run.log") == {"m=256 n=64": 0.0123}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("{'cutile': {'median': 0.0}}", "0.0 is no latency"),
        ("{'cutile': {'median': -3.5}}", "-3.5 is no latency"),
        ("{'cutile': {'median': True}}", "True is no number"),
        ("{'cutile': {'median': '3.5'}}", "'3.5' is no number"),
        ("{'cutile': {'median': None}}", "None is no number"),
        ("{'cutile': {'median': 1e999}}", "inf is no latency"),
        ("{'cutile': {'median': nan}}", "neither a Python literal nor JSON"),
        ('{"cutile": {"median": NaN}}', "NaN is no latency"),
        ('{"cutile": {"median": Infinity}}', "Infinity is no latency"),
        ("{'cutile': {'mean': 3.5}}", "no statistic 'median' (mean instead)"),
        ("{'cutile': {'median': 3.5, 'median': 0.1}}", "a key twice"),
        ('{"cutile": {"median": 3.5, "median": 0.1}}', "a key twice"),
        ("{**{'median': 1.0}}", "a key twice, or none"),
        ("{}", "no statistic 'median' (nothing instead)"),
        ("", "neither a Python literal nor JSON"),
        ("__import__('os').system('true')", "neither a Python literal nor JSON"),
        ("[" * 5000 + "]" * 5000, "nested more than 24 deep"),
        ("-" * 100_000 + "1", "nested more than 24 deep"),
        ("1" * 300_000, "too many for a figure"),
    ],
)
def test_what_is_no_latency_is_an_error_that_shows_the_text(value: str, said: str) -> None:
    with pytest.raises(FigureError) as error:
        figures(junit(value), parser="junit-property")
    assert said in str(error.value)
    assert len(str(error.value)) < 600
    if value.strip() and len(value) < 200:
        assert value[:10] in str(error.value)


def test_nothing_that_was_read_is_an_error() -> None:
    with pytest.raises(FigureError, match="no figure"):
        figures(junit(), parser="junit-property")
    with pytest.raises(FigureError, match=r"no figure .* in 'nothing here'"):
        figures("nothing here", parser="regex", pattern=SEED_PATTERN)
    with pytest.raises(FigureError, match="an empty text"):
        figures("", parser="json")


def test_a_bomb_of_entities_is_not_expanded() -> None:
    bomb = '<?xml version="1.0"?><!DOCTYPE b [<!ENTITY a "1"><!ENTITY b "&a;&a;&a;">]><testsuites>&b;</testsuites>'
    with pytest.raises(FigureError, match="declares a document type"):
        figures(bomb, parser="junit-property")


def test_a_tests_own_text_may_speak_of_document_types() -> None:
    text = junit("0.5").replace("<properties>", "<system-out>&lt;!DOCTYPE html></system-out><properties>")
    assert [*figures(text, parser="junit-property").values()] == [0.5]


@given(st.dictionaries(st.sampled_from("abcdef"), st.floats(1e-6, 1e6), min_size=1))
def test_every_positive_figure_comes_through_as_it_was_written(values: dict[str, float]) -> None:
    nested = {name: {"median": value} for name, value in values.items()}
    expected = {f"of={name}": value for name, value in values.items()}
    assert figures(json.dumps(nested), parser="json") == expected


@given(st.text(max_size=300))
def test_any_other_text_is_refused_and_breaks_nothing(text: str) -> None:
    for parser, keys in (
        ("junit-property", {}),
        ("pytest-benchmark", {}),
        ("json", {}),
        ("perf-report", {"select": ["Triton"], "file": "a.csv"}),
        ("regex", {"pattern": SEED_PATTERN}),
    ):
        try:
            found = figures(text, parser=parser, **keys)
        except FigureError:
            continue
        assert all(value > 0 for value in found.values())
