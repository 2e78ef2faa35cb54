"""Sessions on repositories with kernels for a GPU, judged by their own tests and benchmarks."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from tests.conftest import git
from tests.integration.test_attached import REPOSITORIES, finished, repository
from tests.integration.test_mcp import content
from tests.redteam.harness import STOPPED
from tilewright.harness.commands import Place, run
from tilewright.isolation.process import kept_environment
from tilewright.session.checkout import Checkout
from tilewright.session.verification import Mark, verify

INTERPRETED = """
from tilewright.gpu.specs import spec_by_arch
from tilewright.interpreter import host

host.install(spec_by_arch("sm_90"))
KEPT = host.running(host.Mode.RUN)
KEPT.__enter__()
"""
"""A plugin for pytest with which a repository finds a GPU, and its kernels are interpreted."""
KERNEL_MARK = "@ct.kernel"
LEAST_SPEEDUP = 1.3


@dataclass(frozen=True)
class Edit:
    """Text of the kernel file, what takes its place, and how that ends. `attack` is put before the first kernel."""

    old: str
    new: str
    ends: tuple[str, ...]
    attack: str = ""

    def apply(self, source: str) -> str:
        assert self.old in source, f"{self.old!r} is not there"
        changed = source.replace(self.old, self.new)
        return changed.replace(KERNEL_MARK, f"{self.attack}\n\n{KERNEL_MARK}", 1) if self.attack else changed


@dataclass(frozen=True)
class Attached:
    """A repository with its kernel file, what is tried on it in turn, and what its tests say of right and wrong."""

    kernel: str
    edits: dict[str, Edit]
    passed: str
    failed: str


def attacks(names: tuple[str, ...], old: str, new: str) -> dict[str, Edit]:
    return {name: Edit(old, new, (str(STOPPED[name][1]),), STOPPED[name][0]) for name in names}


NO_GAIN = ("inconclusive", "regression")
MEAN, PADDING = ("keepdims=True) / N", "keepdims=True) / TILE"), ("PaddingMode.NEG_INF", "PaddingMode.ZERO")
ATTACHED = {
    "gpugym": Attached(
        "src/gpugym/ops/cutile/rms_norm.py",
        {
            "divide by the tile's width": Edit(*MEAN, ("failed",)),
            "four blocks on a multiprocessor": Edit("@ct.kernel\n", "@ct.kernel(occupancy=4)\n", ("gain",)),
            "say what a row is": Edit("    row = ct.bid(0)\n", "    row = ct.bid(0)  # of x\n", NO_GAIN),
            **attacks(("skip_from_within_the_kernel", "leave_with_success_at_import"), *MEAN),
        },
        "8 passed, 8 skipped",
        "2 failed, 6 passed, 8 skipped",
    ),
    "gpuops": Attached(
        "gpuops/kernels/softmax.py",
        {
            "pad with zeros": Edit(*PADDING, ("failed",)),
            "16 rows a block": Edit("ROWS = 1\n", "ROWS = 16\n", ("gain",)),
            "2 rows a block, for more blocks": Edit("ROWS = 16\n", "ROWS = 2\n", NO_GAIN),
            **attacks(("skip_from_within_the_kernel", "put_a_link_in_place_of_the_report"), *PADDING),
        },
        "8 passed",
        "2 failed, 6 passed",
    ),
}


def source_of(name: str) -> str:
    return (REPOSITORIES / name / ATTACHED[name].kernel).read_text()


def expected(name: str) -> str:
    """The kernel file as it must be in the end: with what is a gain, and nothing else."""
    source = source_of(name)
    for edit in ATTACHED[name].edits.values():
        source = edit.apply(source) if "gain" in edit.ends else source
    return source


async def iterate(connected: Client, name: str, edit: Edit, kernel: Path) -> None:
    """One iteration, kept or reverted as the verdict says; it has to end as `edit` says."""
    kernel.write_text(edit.apply(kernel.read_text()))
    report = await finished(connected, "run_correctness")
    ended = report["status"]
    if ended == "passed":
        report = await finished(connected, "run_benchmark")
        ended = report["verdict"]["reason"]
    assert ended in edit.ends, report
    if ended == "gain":
        assert report["verdict"]["kind"] == "keep"
        assert report["speedup"] > LEAST_SPEEDUP
        assert "confirmed" in report["verdict"]["detail"]
    await content(connected, "git_checkpoint" if ended == "gain" else "revert")
    assert "harness-trusted" in (await content(connected, "append_result", optimization=name))["row"]


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ATTACHED)
def test_a_real_gain_is_kept_and_nothing_else(tmp_path: Path, name: str) -> None:
    root, attached = repository(tmp_path, name), ATTACHED[name]
    own = {key: value for key, value in os.environ.items() if key.startswith("TILEWRIGHT_")}
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "tilewright", "serve", "--root", str(root)],
        env=kept_environment() | own,
    )

    async def scene() -> None:
        async with Client(server) as connected:
            rules = {"patience": 9, "iteration_minutes": 6}
            started = await finished(connected, "start_session", task=".", rules=rules)
            assert (started["phase"], started["backend"]) == ("ready", "cuda"), started["summary"]
            for what, edit in attached.edits.items():
                await iterate(connected, what, edit, root / attached.kernel)

    asyncio.run(scene())
    assert (root / attached.kernel).read_text() == expected(name)
    assert git(root, "status", "--porcelain") == ""
    assert [line for line in verify(Checkout(root)) if line.mark is Mark.FAIL] == []


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
    ran = run(PROCESSES[process], Place(root, root, scratch), 60)
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
    assert own_tests(tmp_path / "kept", name, expected(name)).startswith(ATTACHED[name].passed)
    wrong = next(edit for edit in ATTACHED[name].edits.values() if edit.ends == ("failed",))
    assert own_tests(tmp_path / "wrong", name, wrong.apply(source_of(name))).startswith(ATTACHED[name].failed)
