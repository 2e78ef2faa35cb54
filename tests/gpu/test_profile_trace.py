"""The kernels of a call, traced on a GPU: whose they are, what a library's split product is, and what contaminates."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from tests.commandline import tilewright
from tests.conftest import commit_all
from tilewright.bundled import examples
from tilewright.gpu.telemetry import find_gpu
from tilewright.profile.counters import find_ncu, read_counters
from tilewright.profile.trace import Trace, read_trace
from tilewright.profile.tracing import CaseTrace, evidence, table
from tilewright.repository import Repository
from tilewright.task import Case

pytestmark = pytest.mark.gpu

BYTES = 8 * 1048576.0
CASES: list[Case] = [{"N": 1048576, "dtype": "float32"}]

SEARCHING = """
import os

import torch

calls = 0


def scale(x, factor):
    global calls
    calls += 1
    if calls % 10 == 0 and os.environ.get("DISABLE_AUTOTUNE") == "1":
        (torch.ones(64, 64, device=x.device) @ torch.ones(64, 64, device=x.device)).sum()
    return x * factor
"""
PRODUCT = """
import torch

made = {}


def scale(x, factor):
    if not made:
        made["matrix"] = torch.randn(7168, 16384, device=x.device, dtype=torch.float16)
        made["vector"] = torch.randn(16384, device=x.device, dtype=torch.float16)
    torch.matmul(made["matrix"], made["vector"])
    return x * factor
"""


def traced(root: Path, kernel: str = "", **options: bool) -> Trace:
    """The candidate `kernel`, or the task's own, traced without the rest of a profile."""
    gpu, repository = find_gpu(), Repository(root)
    protected = repository.files(repository.head())
    files = {"task/kernel.py": kernel.encode() if kernel else protected["task/kernel.py"]}
    uuid = gpu.uuid if gpu else ""
    return asyncio.run(read_trace(protected, files, PurePosixPath("task"), CASES, [BYTES], uuid=uuid, **options))


def only(found: Trace) -> CaseTrace:
    """The trace of the one case, shown for whoever reads the test's output."""
    print(found.summary)
    (case,) = found.cases
    assert case is not None, found.failed
    print("\n".join([*evidence(case), *table(case)]))
    return case


@pytest.mark.parametrize("confined", [True, False])
def test_our_kernel_is_traced_by_cupti(confined: bool, make_task: Callable[..., Path]) -> None:
    found = traced(make_task(), confined=confined)
    case = only(found)
    assert [(row.kernel, row.whose, row.launches) for row in case.kernels] == [("scale_kernel", "ours", 1)]
    assert case.calls == 50
    assert 1 < case.us < 1000
    assert not any(one.startswith("uneven") for one in case.warnings)


def test_launches_that_come_and_go_are_warned_of(make_task: Callable[..., Path]) -> None:
    case = only(traced(make_task(), SEARCHING))
    assert any(one.startswith("uneven: 1 to ") for one in case.warnings)
    assert all(row.whose != "ours" for row in case.kernels)


def test_a_library_s_product_is_traced_whole(make_task: Callable[..., Path]) -> None:
    case = only(traced(make_task(), PRODUCT))
    assert case.kernels_a_call >= 2
    assert case.us > 40
    split = [row for row in case.kernels if "splitk" in row.kernel.lower()]
    assert bool(case.products) == (len(split) > 1)


def test_a_profile_shows_the_kernels_of_a_call(make_task: Callable[..., Path]) -> None:
    done = tilewright("profile", "task", "--backend", "cuda", "--root", str(make_task()))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "traced: 1 kernel a call, " in done.stdout
    assert "scale_kernel" in done.stdout.partition("the kernels of a call")[2]
    assert "would add" in done.stdout


def test_a_triton_kernel_is_profiled_by_what_ran(tmp_path: Path) -> None:
    example = examples() / "05_softmax_triton"
    shutil.copytree(example, tmp_path / "task", ignore=shutil.ignore_patterns("__pycache__"))
    commit_all(tmp_path)
    done = tilewright("profile", "task", "--backend", "cuda", "--root", str(tmp_path))
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "traced: 1 kernel a call, " in done.stdout
    assert "softmax_kernel" in done.stdout.partition("the kernels of a call")[2]
    assert "of the latency by" not in done.stdout  # the model's words


def test_counters_of_a_confined_kernel_are_read(make_task: Callable[..., Path]) -> None:
    if find_ncu() is None:
        pytest.skip("ncu is not installed here")
    repository = Repository(make_task())
    protected = repository.files(repository.head())
    gpu = find_gpu()
    files = {"task/kernel.py": protected["task/kernel.py"]}
    found = asyncio.run(read_counters(protected, files, PurePosixPath("task"), CASES, gpu.uuid if gpu else ""))
    assert found.confined
    assert not found.why_not
    assert found.cases[0] is not None, found.missing
