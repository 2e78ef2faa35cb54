"""Tasks that `tilewright init` makes of what tests call, on a GPU: replayed, and kept if the tests pass."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest

from tests.commandline import tilewright
from tests.conftest import commit_all
from tests.stage import play, quiet
from tilewright.evaluation.results import Level, Status
from tilewright.policy import VerdictKind
from tilewright.session.loop import Loop
from tilewright.task import Backend

FOLDER = Path(__file__).parents[1] / "repositories"
REPOSITORIES = {
    "gpugym": (
        "perf/rms_norm",
        "src/gpugym/ops/cutile/rms_norm.py",
        ("keepdims=True) / N", "keepdims=True) / TILE"),
        ("@ct.kernel\n", "@ct.kernel(occupancy=4)\n"),
    ),
    "gpuops": (
        "perf/softmax",
        "gpuops/kernels/softmax.py",
        ("PaddingMode.NEG_INF", "PaddingMode.ZERO"),
        ("ROWS = 1\n", "ROWS = 16\n"),
    ),
}


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", REPOSITORIES)
def test_a_gain_is_replayed_and_passes_the_tests(tmp_path: Path, name: str) -> None:
    root, (task, kernel, wrong, faster) = tmp_path / name, REPOSITORIES[name]
    shutil.copytree(FOLDER / name, root, ignore=shutil.ignore_patterns("__pycache__"))
    commit_all(root)
    done = tilewright("init", "--yes", cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    content = tomllib.loads((root / task / "task.toml").read_text())
    assert (content["reference"], content["tests"]["command"][:3]) == ("baseline", ["python", "-m", "pytest"])
    commit_all(root, "the task that init wrote")
    file = root / kernel

    async def scene(loop: Loop) -> None:
        started = await loop.start(task, quiet, backend=Backend.CUDA, wait_s=240)
        assert started.phase == "ready", started.summary
        source = file.read_text()
        file.write_text(source.replace(*wrong))
        assert (await loop.run_correctness(quiet, 240)).status is Status.WRONG_VALUES
        loop.revert()
        await loop.append_result("a wrong edit", quiet)
        file.write_text(source.replace(*faster))
        assert (await loop.run_correctness(quiet, 240)).status is Status.PASSED
        report = await loop.run_benchmark(quiet, 240)
        assert report.verdict is not None
        assert (report.verdict.kind, report.level) == (VerdictKind.KEEP, Level.REPLAYED), report.summary

    play(root, scene)
