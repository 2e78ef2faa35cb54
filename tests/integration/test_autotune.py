"""The search as the tool and the command make it, on the cpu backend."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tests.commandline import tilewright
from tests.conftest import SCALE_KERNEL
from tests.stage import edit
from tilewright.autotune.report import AutotuneReport
from tilewright.autotune.tuner import Tuner
from tilewright.errors import UsageError
from tilewright.session.loop import Loop
from tilewright.task import Backend
from tilewright.tools import run


def tune(root: Path, **options: Any) -> AutotuneReport:
    report: AutotuneReport = run("autotune", root, task="task", backend="cpu", **options)
    return report


@pytest.mark.slow
def test_a_search_ranks_fails_confirms_and_applies(make_task: Callable[..., Path]) -> None:
    root = make_task()
    kernel = root / "task" / "kernel.py"
    report = tune(root, space={"TILE": [16, 48, 4096], "occupancy": [1, 8]}, apply=True, wrapper=True)
    assert report.status == "passed", report.message
    by_config = dict(line.split(": ", 1) for line in report.configs)
    assert len(by_config) == 7
    assert by_config["as it is"] == "modelled, 1.0000x (0.9901 to 1.0100)"
    assert by_config["TILE=48 occupancy=1"].startswith("failed, ")
    assert "power of two" in by_config["TILE=48 occupancy=1"]
    assert by_config["TILE=48 occupancy=8"].startswith("failed, ")
    assert by_config["TILE=16 occupancy=1"].startswith("modelled, ")
    assert report.best["TILE"] == 4096
    assert "the original, by the model, and checked" in report.summary
    assert "TILE = 4096" in kernel.read_text()
    assert "`tilewright compare` sets it beside" in report.next  # outside of a session
    result = json.loads(Path(report.files["result"]).read_text())
    assert len(result["tried"]) == 7
    wrapper = Path(report.files["wrapper"]).read_text()
    assert f'"{sha256(kernel.read_bytes()).hexdigest()}"' in wrapper, "it is for the source with the best config"
    assert not subprocess.run(
        ["git", "status", "--porcelain", "sandbox"], cwd=root, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.slow
def test_todays_search_over_a_measured_space_races_its_best_three(tmp_path: Path) -> None:
    """With the times that an H200 took for each config in the place of a GPU; and behind other processes."""
    script = [sys.executable, "-m", "benchmarks.advice.replayed"]
    done = subprocess.run(
        ["nice", "-n", "15", *script, "run", str(tmp_path / "found.json"), "--only", "rmsnorm"],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| rmsnorm | 17 |" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("| all three | 0.0% |")


def test_where_the_original_stays_no_wrapper_is_needed(make_task: Callable[..., Path]) -> None:
    root = make_task()
    report = tune(root, space={"TILE": [16]}, wrapper=True)
    assert report.best == {}
    assert report.files["wrapper"] == "not written: the original stays, for every case"


def test_what_cannot_be_searched_is_refused_with_a_remedy(make_task: Callable[..., Path]) -> None:
    root = make_task()
    with pytest.raises(UsageError, match="no tunable parameter 'TILE_M'"):
        tune(root, space={"TILE_M": [1]})
    with pytest.raises(UsageError, match="kind: must be 'matmul', 'attention' or 'rows', not \"T0\""):
        tune(root, kind="T0")
    (root / "task" / "kernel.py").write_text(SCALE_KERNEL.replace("* factor", "* missing"))
    report = tune(root, space={"TILE": [32]})
    assert report.status == "compile_error"
    assert "missing" in report.message
    assert "NAME=1,2,4" in tilewright("autotune", "task", "--space", "TILE", "--root", str(root)).stderr


def test_a_search_in_a_session_asks_its_referee_and_is_applied_by_another_call(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop(begun)
    tuner, said = Tuner(loop), list[str]()

    async def tell(text: str) -> None:
        said.append(text)

    async def scene() -> AutotuneReport:
        try:
            edit(begun, SCALE_KERNEL + "ONE = 1\n")
            await loop.run_correctness(tell)
            monkeypatch.setattr("tilewright.session.loop.Runs", None)
            first = await tuner.tune(PurePosixPath("task"), tell, Backend.CPU, values={"TILE": [4096]})
            assert first.best == {"TILE": 4096}
            said.clear()
            return await tuner.tune(PurePosixPath("task"), tell, Backend.CPU, values={"TILE": [4096]}, apply=True)
        finally:
            await loop.close()

    report = asyncio.run(scene())
    assert said == []
    assert "is in the working tree" in report.next
    assert "TILE = 4096" in (begun / "task" / "kernel.py").read_text()
