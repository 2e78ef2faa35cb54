"""A sample of the mutation test: wrong kernels fail the correctness check. `make mutants` runs the whole of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kernel", ["affine", "rowsum", "transpose"])
@pytest.mark.slow
def test_wrong_kernels_fail(kernel: str, tmp_path: Path) -> None:
    """In a process of its own, which pretends to have a GPU."""
    report = tmp_path / "mutants.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.check.mutants",
        "--only",
        kernel,
        "--per-kernel",
        "14",
        "--json",
        str(report),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = json.loads(report.read_text())["outcomes"]
    assert outcomes["killed"] >= 6
