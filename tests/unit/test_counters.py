"""What is read from ncu's table, how ncu is run, and what the counters make of a diagnosis."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_profile import CEILINGS, H200, WORK, ran
from tilewright.profile import counters
from tilewright.profile.counters import METRICS, Counters, KernelCounters, parse, read_counters, reason
from tilewright.profile.diagnosis import diagnose
from tilewright.profile.rules import Signs, holding

EVIDENCE = Path(__file__).parents[2] / "benchmarks" / "evidence" / "bottlenecks.json.gz"
RECORDED = json.loads(gzip.decompress(EVIDENCE.read_bytes()))["kernels"]
KNOWN = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size",
         "Device", "CC")  # fmt: skip
BUSY = {
    "time_ns": "123456", "dram_percent": "91.25", "dram_read": "268,435,456", "l2_percent": "40.5", "l1_percent": "n/a",
    "occupancy_percent": "12.48", "issue_percent": "8.1", "long_scoreboard": "5.25", "wait": "9.5",
}  # fmt: skip


def table(rows: list[tuple[str, dict[str, str]]], units: dict[str, str] | None = None) -> str:
    """Launches as `ncu --csv --page raw` writes them: names, units, a line each, all in quotes."""
    names = [*dict.fromkeys(name for _, values in rows for name in values)]
    head = [*KNOWN, *(METRICS[name] for name in names)]
    second = ["" for _ in KNOWN] + [(units or {}).get(name, "") for name in names]
    lines = [head, second]
    for number, (kernel, values) in enumerate(rows):
        fixed = [
            str(number),
            "4711",
            "python3.12",
            "127.0.0.1",
            kernel,
            "1",
            "7",
            "(128, 1, 1)",
            "(132, 1, 1)",
            "0",
            "9.0",
        ]
        lines.append(fixed + [values.get(name, "") for name in names])
    quoted = "\n".join(",".join(f'"{cell}"' for cell in line) for line in lines)
    return (
        f"==PROF== Connected to process 4711 (/usr/bin/python3.12)\n==PROF== Disconnected from process 4711\n{quoted}\n"
    )


def test_a_table_is_read_in_base_units() -> None:
    (one,) = parse(table([('void k<int, "x">', BUSY)], {"time_ns": "ns", "dram_read": "byte"}).replace('"x"', "x"))
    assert one.kernel == "void k<int, x>"
    assert one.time_ns == 123456.0
    assert one.dram_read == 268435456.0
    assert one.l1_percent == 0.0
    assert one.stalls == {"long_scoreboard": 5.25, "wait": 9.5}
    assert one.worst_stall == "long_scoreboard"


def test_a_table_that_was_recorded_on_an_h200_names_what_bounds_its_kernels() -> None:
    """ncu 2025.3 on `x * 2` of 268 MB in cuTile, and on cuBLAS's float32 product of 4096x4096x4096 without TF32."""
    doubled, product = parse(Path(__file__).with_name("ncu_h200.csv").read_text())
    assert {*doubled.model_dump(exclude_unset=True), *doubled.stalls} == {*METRICS, "kernel", "stalls"}
    assert (doubled.time_ns, doubled.dram_read) == (130464.0, 268481280.0)
    assert doubled.sectors_a_request == 16
    assert doubled.worst_stall == "long_scoreboard"
    rules = [holding(Signs(1.0, 2 * 2.68e8, counters=launch))[0] for launch in (doubled, product)]
    assert [rule.bound for rule in rules] == ["DRAM bandwidth", "instruction issue"]


@pytest.mark.parametrize("text", ["", "==ERROR== No kernels were profiled\n", '"ID","Kernel Name"\n', "some output\n"])
def test_what_is_no_table_is_no_launch(text: str) -> None:
    assert parse(text) == []


def test_a_cut_line_is_left_out() -> None:
    assert len(parse(table([("k", BUSY), ("l", BUSY)]) + '"3","4711"\n')) == 2


def test_why_nothing_was_read_is_one_line() -> None:
    assert "may not read the GPU's counters" in reason("==ERROR== ERR_NVGPUCTRPERM - The user ...", "", 1)
    text = reason("==PROF== x\n==ERROR== Failed to initialize the profiler: LibraryNotLoaded\n", "counts 3\n", 1)
    assert text == "Failed to initialize the profiler: LibraryNotLoaded"
    assert reason("", "Traceback\nValueError: no\n", 1) == "ValueError: no"
    assert "status 3" in reason("", "", 3)


FAKE = """#!/bin/sh
while [ $# -gt 0 ]; do
  case "$1" in --log-file) log=$2; shift ;; esac
  shift
done
printf "counts 2\\ncounts 1\\n"
echo "$TMPDIR" > {seen}
cat > "$log" <<'END'
{table}END
"""


def fake(folder: Path, text: str) -> Path:
    """A program that behaves as ncu does."""
    path = folder / "ncu"
    path.write_text(FAKE.format(seen=folder / "seen", table=text))
    path.chmod(0o755)
    return path


def read(*programs: Path | str, **options: float) -> Counters:
    return asyncio.run(read_counters(programs, **options))


PROGRAM = Path("a.program")


def test_launches_are_told_apart_by_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launches = table([("a", BUSY), ("b", BUSY), ("c", BUSY)])
    monkeypatch.setenv("PATH", str(fake(tmp_path, launches).parent), prepend=":")
    found = read("it waits", PROGRAM, PROGRAM, PROGRAM)
    assert found.why_not == ""
    assert [[one.kernel for one in case] for case in found.cases] == [[], ["a", "b"], ["c"], []]
    assert found.cases[1][0].dram_percent == 91.25
    assert "tilewright-ncu-" in (tmp_path / "seen").read_text()  # where ncu keeps its lock is a folder of its own
    assert "on replayed programs" in found.summary


def test_a_metric_that_ncu_does_not_know_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "find_tool", lambda _: str(fake(tmp_path, "==ERROR== Failed to find metric x\n")))
    assert read(PROGRAM) == Counters(why_not="Failed to find metric x")


def test_without_ncu_or_a_program_one_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "find_tool", lambda _: str(fake(tmp_path, "")))
    assert read("it waits", "it waits").why_not == "it waits"
    monkeypatch.setattr(counters, "find_tool", lambda _: None)
    assert "neither on PATH" in read(PROGRAM).why_not


def test_an_ncu_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ncu"
    path.write_text("#!/bin/sh\nsleep 60\n")
    path.chmod(0o755)
    monkeypatch.setattr(counters, "find_tool", lambda _: str(path))
    assert "stopped after 1 s" in read(PROGRAM, limit_s=1.0).why_not


def launch(stalls: dict[str, float] | None = None, **values: float) -> KernelCounters:
    known: dict[str, Any] = {
        "dram_percent": 20.0, "l2_percent": 20.0, "issue_percent": 20.0, "occupancy_percent": 80.0,
    }  # fmt: skip
    return KernelCounters(kernel="k", time_ns=1e5, stalls=stalls or {}, **(known | values))


@pytest.mark.parametrize(
    ("bound", "counted"),
    [
        ("DRAM bandwidth", launch(dram_percent=88.0, l2_percent=90.0)),
        ("L2 bandwidth", launch(l2_percent=75.0)),
        ("DRAM bandwidth", launch(dram_percent=64.0, l2_percent=75.0)),  # a stream passes through L2
        ("DRAM bandwidth", launch(dram_percent=75.0, issue_percent=62.0)),
        ("tail wave", launch(dram_percent=85.0, busy_cycles=7e5, elapsed_cycles=1e6)),
        ("spilled registers", launch(dram_percent=85.0, local_sectors=1e7)),
        ("L2 bandwidth", launch(dram_percent=65.0, l2_percent=96.0)),
        (
            "bytes in flight",
            launch({"long_scoreboard": 9.0}, dram_percent=64.0, l2_percent=75.0, occupancy_percent=45.0),
        ),
        ("L2 bandwidth", launch(dram_percent=40.0, l2_percent=75.0)),
        ("tensor cores", launch(tensor_percent=85.0)),
        ("arithmetic", launch(fma_percent=70.0)),
        ("instruction issue", launch(issue_percent=80.0)),
        ("bank conflicts", launch(shared_percent=90.0, shared_wavefronts=3200.0, store_conflicts=3000.0)),
        ("shared memory", launch(shared_percent=90.0, shared_wavefronts=3200.0, store_conflicts=10.0)),
        ("uncoalesced access", launch(load_sectors=3.2e7, load_requests=1e6, dram_percent=85.0)),
        ("bytes in flight", launch({"long_scoreboard": 9.0, "wait": 12.0}, occupancy_percent=12.0)),
        ("unexplained", launch({"long_scoreboard": 9.0})),
        ("unexplained", launch({"math_pipe_throttle": 9.0}, occupancy_percent=12.0)),
    ],
)
def test_counters_name_a_bound(bound: str, counted: KernelCounters) -> None:
    signs = Signs(1.0, WORK.bytes, counters=counted, grid="ncu: half", spill_bytes=8)
    rule, evidence = holding(signs)
    assert rule.bound == bound
    assert evidence.startswith("ncu: ") == (bound not in ("unexplained", "spilled registers"))
    assert bool(rule.remedies) == (bound != "unexplained")
    assert "{" not in evidence


MULTIPLY = ("spills", "tail wave", "missing tensor cores", "tensor cores at the ceiling", "unseen: conv1d_taps",
            "unseen: clip_logits", "unseen: mlp_sqrelu")  # fmt: skip


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: row["planted"])
def test_what_was_counted_on_an_h200_names_the_planted_bottleneck(row: dict[str, Any]) -> None:
    launches = [KernelCounters.model_validate(one) for one in row["counters"]["cases"][0]]
    case, main = row["report"]["cases"][0], max(launches, key=lambda launch: launch.time_ns)
    us = sum(launch.time_ns for launch in launches) / 1e3
    signs = Signs(
        us / 1e3,
        case["bandwidth_gb_s"] * case["latency_ms"] * 1e6,
        launches=len(launches),
        lacks_tensor_cores=row["planted"] in MULTIPLY and not main.tensor_percent,
        spill_share=0.0,
        counters=main,
    )
    relabelled = {"unseen: layerscale_gelu": "bytes in flight"}  # wider rows take less time: DRAM was no limit
    assert holding(signs)[0].bound == relabelled.get(row["planted"], row["expected"])


def test_a_diagnosis_shows_the_counters_of_the_longest_launch() -> None:
    blind = diagnose(ran(), H200, CEILINGS)
    assert blind.bound == "unexplained"
    assert not any(one.startswith("ncu") for one in blind.evidence)
    seen = diagnose(
        ran(counters=[launch(l2_percent=92.0), KernelCounters(kernel="small", time_ns=10.0)]), H200, CEILINGS
    )
    assert seen.bound == "L2 bandwidth"
    assert any(one.startswith("ncu: 100.0 us, DRAM 20%, L2 92%") for one in seen.evidence)
    assert any(one.endswith("1 further launches") for one in seen.evidence)
