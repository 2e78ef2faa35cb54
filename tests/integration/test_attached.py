"""Sessions on repositories as they are, with their own tests and benchmarks: a gain is kept, others are refused."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.conftest import commit_all, git
from tests.integration.test_mcp import client, content
from tests.stage import play, quiet
from tilewright.errors import UsageError
from tilewright.evaluation.results import Status
from tilewright.session.checkout import Checkout
from tilewright.session.loop import Loop
from tilewright.session.verification import Mark, verify

REPOSITORIES = Path(__file__).parents[1] / "repositories"
GYM_KERNEL = "src/minigym/ops/cutile/layer_norm.py"
OPS_KERNEL = "miniops/kernels/softmax.py"
ONE_PASS_TOO_MANY = """import numpy as np


def softmax(x):
    out = np.empty_like(x)
    for _ in range(2):
        for row in range(x.shape[0]):
            values = np.exp(x[row] - x[row].max())
            out[row] = values / values.sum()
    return out
"""
TRIES = 5


def repository(tmp_path: Path, name: str) -> Path:
    root = tmp_path / name
    shutil.copytree(REPOSITORIES / name, root, ignore=shutil.ignore_patterns("__pycache__"))
    commit_all(root)
    return root


async def finished(connected: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """A tool's answer: it is asked again while it runs, and where a busy machine made a run void."""
    for _ in range(TRIES):
        report = await content(connected, tool, **arguments)
        while report["state"] == "running":
            report = await content(connected, tool, **arguments)
        if report.get("status") != "void":
            return report
    raise AssertionError(report)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_session_on_a_kernel_library_with_tests_of_its_own(tmp_path: Path) -> None:
    root = repository(tmp_path, "minigym")
    kernel = root / GYM_KERNEL
    source = kernel.read_text()

    async def scene() -> None:
        async with client(root) as connected:
            started = await finished(connected, "start_session", task=".", rules={"patience": 5})
            assert started["phase"] == "ready", started
            assert started["backend"] == "cpu"
            assert "~" not in json.dumps(started["tried"])
            told = " ".join(started["notes"])
            for lacking in ("harness-trusted", "hidden cases", "secret seeds", "replayed", "tilewright init"):
                assert lacking in told

            kernel.write_text(source.replace("ROWS = 1", "ROWS = 64"))
            passed = await finished(connected, "run_correctness")
            assert passed["status"] == "passed", passed
            assert "3 tests passed, 5 skipped as on the baseline" in passed["summary"]
            gain = await finished(connected, "run_benchmark")
            assert (gain["verdict"]["kind"], gain["verdict"]["reason"]) == ("keep", "gain"), gain
            assert "[harness-trusted]" in gain["summary"]
            assert gain["speedup"] > 2
            assert gain["cases"].count(": +") == 2
            await content(connected, "git_checkpoint")
            row = await content(connected, "append_result", optimization="64 rows a block")
            assert "64 rows a block [harness-trusted; visible sizes only]" in row["row"]

            kernel.write_text(source.replace("ROWS = 1", "ROWS = 64").replace("np.sqrt(variance + eps)", "1.0"))
            wrong = await finished(connected, "run_correctness")
            assert wrong["status"] == "failed", wrong
            assert "test_op[cutile-1-64]: AssertionError" in wrong["message"]
            assert "3 of 8 tests failed" in wrong["message"]
            await content(connected, "revert")
            await content(connected, "append_result", optimization="leave the root out")

            kernel.write_text(source + "\n# no faster for it\n")  # it is as slow as at first
            assert (await finished(connected, "run_correctness"))["status"] == "passed"
            for _ in range(TRIES):
                false = await finished(connected, "run_benchmark")
                if false["verdict"] is not None:
                    break
            assert false["verdict"]["kind"] == "revert", false
            await content(connected, "revert")
            await content(connected, "append_result", optimization="say that it is faster")

            status = await content(connected, "session_status")
            assert [re.findall(r"\| (\w+) \| \w+: ", row)[0] for row in status["tried"][1:]] == [
                "keep",
                "revert",
                "revert",
            ]
            assert all("[harness-trusted; visible sizes only]" in row for row in status["tried"])

    asyncio.run(scene())
    table = (root / "sandbox" / "perf_results.md").read_text().splitlines()
    assert all(line.count("|") == 6 for line in table)
    assert table[2].split("|")[2].strip() == "baseline [harness-trusted; visible sizes only]"
    assert kernel.read_text() == source.replace("ROWS = 1", "ROWS = 64")
    assert git(root, "status", "--porcelain") == ""
    lines = verify(Checkout(root))
    assert [line for line in lines if line.mark is Mark.FAIL] == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_session_on_a_library_whose_benchmark_writes_a_log(tmp_path: Path) -> None:
    root = repository(tmp_path, "miniops")
    (root / "profile_run.log").write_text("op=softmax | m=256 | n=64 | latency_ms=0.000001\n")

    async def scene(loop: Loop) -> None:
        started = await loop.start(".", quiet, wait_s=900)
        assert started.phase == "ready", started.summary
        assert float(started.tried[0].split(" | ")[2]) > 0.001, "an old log was read"
        (root / OPS_KERNEL).write_text(ONE_PASS_TOO_MANY)
        assert (await loop.run_correctness(quiet, 900)).status is Status.PASSED
        for _ in range(TRIES):
            found = await loop.run_benchmark(quiet, 900)
            if found.status is not Status.VOID:
                break
        assert found.verdict is not None, found.summary
        assert (found.verdict.kind, found.verdict.reason) == ("revert", "regression")
        assert "m=256 n=64: " in found.cases
        assert "m=512 n=128: " in found.cases
        loop.revert()
        assert "[harness-trusted; visible sizes only]" in (await loop.append_result("twice over", quiet)).row

    play(root, scene)


def test_a_file_that_no_test_uses_is_no_candidates(tmp_path: Path) -> None:
    root = repository(tmp_path, "miniops")
    (root / "unused.py").write_text("x = 1\n")
    task = root / "task.toml"
    task.write_text(task.read_text().replace('["miniops/kernels/softmax.py"]', '["unused.py"]'))
    commit_all(root, "another file")

    async def scene(loop: Loop) -> None:
        with pytest.raises(UsageError, match=r"the tests pass without unused\.py.*take it out of"):
            await loop.start(".", quiet, wait_s=900)

    play(root, scene)


IMPOSTOR = """
import sys
import types

import numpy as np


def softmax(x):
    values = np.exp(x)
    return values / values.sum(axis=1, keepdims=True)


impostor = types.ModuleType("miniops.kernels.softmax")
impostor.softmax = softmax
sys.modules[impostor.__name__] = impostor
"""


def test_tests_that_run_another_module_than_the_repositorys_are_refused(tmp_path: Path) -> None:
    root = repository(tmp_path, "miniops")
    (root / "tests" / "conftest.py").write_text(IMPOSTOR)
    commit_all(root, "a conftest")

    async def scene(loop: Loop) -> None:
        with pytest.raises(UsageError, match=r"the tests pass without miniops/kernels/softmax\.py"):
            await loop.start(".", quiet, wait_s=900)

    play(root, scene)


@pytest.mark.slow
def test_what_lies_elsewhere_on_pythons_path_does_not_take_the_snapshots_place(tmp_path: Path) -> None:
    """As where an editable install sends imports to the working tree: a run cannot read there, and imports its own."""
    root = repository(tmp_path, "miniops")
    (root / "tests" / "conftest.py").write_text(f"import sys\n\nsys.path.insert(0, {str(tmp_path / 'elsewhere')!r})\n")
    shutil.copytree(root / "miniops", tmp_path / "elsewhere" / "miniops")
    (tmp_path / "elsewhere" / OPS_KERNEL).write_text("raise SystemExit('the wrong one')\n")
    commit_all(root, "a conftest")

    async def scene(loop: Loop) -> None:
        await loop.start(".", quiet, wait_s=900)
        assert loop.status().phase == "ready"

    play(root, scene)


def test_all_skipped_is_no_baseline(tmp_path: Path) -> None:
    root = repository(tmp_path, "minigym")
    task = root / "task.toml"
    task.write_text(task.read_text().replace("test_ and not test_perf", "test_op and triton"))
    commit_all(root, "the wrong backend")

    async def scene(loop: Loop) -> None:
        report = await loop.start(".", quiet, wait_s=900)
        assert "all 4 tests were skipped, which is no pass: Backend triton is not available" in report.summary

    play(root, scene)


def test_what_takes_a_native_task_says_so(tmp_path: Path) -> None:
    root = repository(tmp_path, "minigym")

    async def scene() -> None:
        async with client(root) as connected:
            refused = await connected.call_tool("dump_ir", {"task": "."})
            assert refused.is_error
            assert "tilewright init" in str(getattr(refused.content[0], "text", ""))

    asyncio.run(scene())
