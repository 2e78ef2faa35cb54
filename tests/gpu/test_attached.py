"""Sessions on repositories with kernels for a GPU, judged by their own tests and benchmarks."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.attached import ATTACHED, KERNEL_MARK, REPOSITORIES, expected, failures, session, shown
from tilewright.harness.commands import Place, environment_of, run

INTERPRETED = """
from tilewright.gpu.specs import spec_by_arch
from tilewright.interpreter import host

host.install(spec_by_arch("sm_90"))
KEPT = host.running(host.Mode.RUN)
KEPT.__enter__()
"""
"""A plugin for pytest with which a repository finds a GPU, and its kernels are interpreted."""
PASSED = {"gpugym": "8 passed, 8 skipped", "gpuops": "8 passed"}
WRONG = {"gpugym": "2 failed, 6 passed, 8 skipped", "gpuops": "2 failed, 6 passed"}


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ATTACHED)
def test_a_real_gain_is_kept_and_nothing_else(tmp_path: Path, name: str) -> None:
    found: dict[str, Any] = {}

    def save() -> None:
        (tmp_path / "attached.json").write_text(json.dumps(found, indent=1))

    asyncio.run(session(name, tmp_path, found, save, until=time.monotonic() + 1200, minutes=6))
    print(shown(found))
    assert failures(found) == []


USES_GPU = "import torch; print('sum', torch.ones(8, device='cuda').sum().item())"
PROCESSES = {
    "its own": ["python", "-c", USES_GPU],
    "its own, that a shell became": ["sh", "-c", f'exec {sys.executable} -c "{USES_GPU}"'],
    "one below it": ["sh", "-c", f'{sys.executable} -c "{USES_GPU}"; exit $?'],
}


@pytest.mark.gpu
@pytest.mark.parametrize("process", PROCESSES)
def test_the_gpu_can_be_used_by_a_process_of_a_command(tmp_path: Path, process: str) -> None:
    """Confined as it is: CUDA names its threads below /proc/self/task, which has to be allowed for each process."""
    root, scratch = tmp_path / "root", tmp_path / "scratch"
    root.mkdir()
    scratch.mkdir()
    ran = run(PROCESSES[process], Place(root, root, scratch), environment_of(scratch, [root], {}), 60)
    if process == "one below it":  # a rule names files that are there when it is made
        assert "Error 304" in ran.last_words, "README and troubleshooting say that this does not work"
    else:
        assert (ran.status, ran.stdout) == (0, "sum 8.0\n"), ran.last_words


def own_tests(tmp_path: Path, name: str, source: str) -> str:
    """The last line that pytest prints of a repository's tests with this kernel file, where kernels are interpreted."""
    root = tmp_path / name
    shutil.copytree(REPOSITORIES / name, root, ignore=shutil.ignore_patterns("__pycache__"))
    (root / ATTACHED[name].kernel).write_text(source)
    (root / "interpreted.py").write_text(INTERPRETED)
    options = ["-q", "-p", "interpreted", "-o", "pythonpath=src .", "-k", "not perf"]
    words = [sys.executable, "-m", "pytest", *options, "tests"]
    alone = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(words, cwd=root, env=alone, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACHED)
def test_the_kernels_are_right_or_wrong_as_the_sessions_take_them_to_be(tmp_path: Path, name: str) -> None:
    source = (REPOSITORIES / name / ATTACHED[name].kernel).read_text()
    assert own_tests(tmp_path / "kept", name, expected(name)).startswith(PASSED[name])
    wrong = ATTACHED[name].edits[0]
    assert wrong.ends == ("failed",)
    assert own_tests(tmp_path / "wrong", name, wrong.apply(source, KERNEL_MARK)).startswith(WRONG[name])
