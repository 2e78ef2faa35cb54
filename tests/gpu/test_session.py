"""A session on the GPU, from baseline to kept gain, with the seed's first example."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.conftest import commit_all
from tilewright.bundled import examples
from tilewright.evaluation.results import Status
from tilewright.policy import Reason, VerdictKind
from tilewright.rules import Rules
from tilewright.session.loop import Loop

pytestmark = pytest.mark.gpu


async def quiet(_: str) -> None: ...


def test_a_real_gain_is_kept_and_a_copy_of_it_is_not(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    shutil.copytree(
        examples() / "01_rmsnorm_occupancy_only", root / "task", ignore=shutil.ignore_patterns("__pycache__")
    )
    commit_all(root)
    kernel = root / "task" / "fixed_launch.py"

    async def scene() -> None:
        loop = Loop(root)
        try:
            started = await loop.start("task", quiet, rules=Rules(patience=5, ceiling_percent=200))
            assert started.backend == "cuda"
            assert started.incumbent is not None
            assert "~" not in started.incumbent.latency
            kernel.write_text(kernel.read_text().replace("@ct.kernel\n", "@ct.kernel(occupancy=4)\n"))
            assert (await loop.run_correctness(quiet)).status is Status.PASSED
            report = await loop.run_benchmark(quiet)
            assert report.verdict is not None
            assert report.verdict.kind is VerdictKind.KEEP
            assert report.speedup is not None
            assert report.speedup > 1.5
            assert report.verdict.detail.endswith("confirmed")
            assert report.level == "replayed"
            loop.checkpoint()
            await loop.append_result("occupancy 4", quiet)
            kernel.write_text(kernel.read_text() + "\n# the same again\n")
            assert (await loop.run_correctness(quiet)).status is Status.PASSED
            report = await loop.run_benchmark(quiet)
            assert report.verdict is not None
            assert report.verdict.reason is Reason.SAME_PROGRAM
            loop.revert()
            assert (await loop.append_result("a comment", quiet)).advice.action == "continue"
        finally:
            await loop.close()

    asyncio.run(scene())
