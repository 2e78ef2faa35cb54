"""The latency model: against what an H200 measured, and in what it must never reward."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.compiler.resources import Resources
from tilewright.evaluation.estimation import in_parts
from tilewright.gpu.specs import spec_by_arch
from tilewright.roofline.model import (
    KERNEL_ERROR,
    Estimate,
    HostWork,
    LaunchProfile,
    estimate_launch,
)

ROOT = Path(__file__).parents[2]
H200 = spec_by_arch("sm_90")


def profile(**changes: object) -> LaunchProfile:
    resources = {
        "registers": 64, "spill_bytes": 0, "shared_bytes": 0, "threads": 128, "barriers": 0, "cluster_ctas": 1,
        "ctas_per_sm": 8, "limited_by": "registers", "max_threads_per_sm": 2048, "instructions": 300,
        "tensor_core": {}, "tma": {}, "plain_loads": 8, "local_memory": 0, "code": "",
    }  # fmt: skip
    changed_resources = {name: value for name, value in changes.items() if name in resources}
    facts = {
        "kernel": "k", "blocks": 16384, "bytes_loaded": 16384.0, "bytes_stored": 16384.0, "load_rounds": 1.0,
        "matrix_flops": {}, "scalar_flops": 4096.0, "special_functions": 0.0, "loop_trips": 0.0,
        "dram_bytes": 16384 * 32768.0, "resources": Resources.model_validate(resources | changed_resources),
    }  # fmt: skip
    changed_facts = {name: value for name, value in changes.items() if name in facts}
    return LaunchProfile.model_validate(facts | changed_facts)


TORCH = HostWork(name="copy_", bytes=1e6, flops=0, dtype="float32")
SWEEPS, PROFILES = "benchmarks/evidence/sweeps.json.gz", "benchmarks/evidence/profiles.json.gz"


def compared(*options: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "benchmarks.advice.model", "compare", SWEEPS, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def figures(text: str) -> dict[str, tuple[float, float]]:
    """Measured and modelled latency by configuration."""
    rows = re.findall(r"^(\w+ +\{.*\}) +measured +(\S+) ms, modelled ~ *(\S+) ms", text, re.MULTILINE)
    return {config: (float(measured), float(modelled)) for config, measured, modelled in rows}


@pytest.mark.slow
def test_the_model_ranks_configurations_as_an_h200_does_and_flags_the_hopeless(tmp_path: Path) -> None:
    code, text = compared("--profiles", PROFILES, "--json", str(tmp_path / "model.json"))
    assert code == 0, text
    found = json.loads((tmp_path / "model.json").read_text())["kernels"]
    assert found == json.loads((ROOT / "benchmarks" / "evidence" / "model-ranks.json").read_text())["kernels"]
    assert set(found) == {"rmsnorm", "matmul", "rope", "attention", "softmax"}
    assert all(one["rank"] >= 0.8 for one in found.values()), found
    assert sum(one["configurations"] for one in found.values()) == len(figures(text)) == 123
    assert all(one["least"] > 0.45 and one["most"] < 1.3 for one in found.values())


def test_the_error_that_is_told_of_kernels_is_the_one_that_was_measured() -> None:
    found = json.loads((ROOT / "benchmarks" / "evidence" / "model-ranks.json").read_text())["kernels"].values()
    measured = min(one["least"] for one in found), max(one["most"] for one in found)
    assert pytest.approx(measured, abs=0.005) == KERNEL_ERROR


@pytest.mark.slow
def test_the_profiles_that_the_fit_was_made_with_are_what_is_compiled_and_sampled() -> None:
    now, before = (figures(compared("--every", "31", *options)[1]) for options in ((), ("--profiles", PROFILES)))
    assert len(now) == 4
    assert now == before


@pytest.mark.parametrize(
    "worse",
    [
        {"blocks": 16385, "dram_bytes": 16385 * 32768.0},
        {"bytes_loaded": 40000.0, "dram_bytes": 16384 * 56384.0},
        {"local_memory": 40},
        {"ctas_per_sm": 1},
        {"instructions": 3000},
        {"matrix_flops": {"float32": 1e8}},
    ],
)
def test_more_of_anything_costs_more(worse: dict[str, object]) -> None:
    assert estimate_launch(profile(**worse), H200).ms > estimate_launch(profile(), H200).ms


def test_no_latency_is_below_what_the_data_sheet_allows() -> None:
    found = estimate_launch(profile(), H200)
    assert found.ms > 16384 * 32768 / H200.dram_bytes_per_s * 1e3
    assert found.limit in found.terms
    assert estimate_launch(profile(blocks=0), H200).limit == "launch"
    only_writes = profile(bytes_loaded=0.0, load_rounds=0.0, dram_bytes=16384 * 16384.0)
    assert found.ms / 2.5 < estimate_launch(only_writes, H200).ms < found.ms


def test_the_parts_of_a_latency_come_with_what_they_make_up() -> None:
    estimate = Estimate(0.05, {"launch": 0.0001, "bytes in flight": 0.02, "DRAM bandwidth": 0.04})
    assert in_parts(estimate) == (
        "DRAM bandwidth ~0.0400 ms, bytes in flight ~0.0200 ms: ~0.0500 ms in all, with what overlaps counted once"
    )
    assert in_parts(Estimate(0.05, {"torch operations": 0.05})) == "torch operations ~0.0500 ms"
