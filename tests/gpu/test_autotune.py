"""The race of a search, and a profile, on a GPU."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from tests.commandline import tilewright
from tests.conftest import SCALE_TOML
from tilewright.evaluation.results import Status
from tilewright.evaluation.seeds import new_secret
from tilewright.repository import Repository
from tilewright.session.outcomes import RaceResult
from tilewright.session.runs import Runs
from tilewright.task import Backend
from tilewright.tools import run

pytestmark = pytest.mark.gpu


def test_a_race_finds_the_larger_tile(make_task: Callable[..., Path]) -> None:
    space = {"TILE": [16, 64, 1024, 4096], "occupancy": [1, 8]}
    report = run("autotune", make_task(), task="task", space=space, backend="cuda")
    assert report.status == "passed", report.message
    assert "confirmed by a second comparison" in report.summary
    assert report.best["TILE"] in (1024, 4096)
    assert any(": measured, " in line for line in report.configs)


def test_what_is_wrong_fails_or_is_the_same_is_told_from_what_is_slow(make_task: Callable[..., Path]) -> None:
    repository = Repository(make_task())
    kernel = repository.files(repository.head())["task/kernel.py"].decode()
    sources = [
        kernel,
        kernel.replace("TILE = 64", "TILE = 1024"),
        kernel.replace("TILE = 64", "TILE = 16"),
        kernel + "\n# the same\n",
        kernel.replace("values * factor", "values * factor + 1"),
        kernel.replace("TILE = 64", "TILE = 48"),
        kernel.replace("    out = torch.empty_like(x)", "    out = torch.empty_like(x)\n    assert x.sum() == x.sum()"),
    ]

    async def raced() -> RaceResult:
        runs = Runs(Backend.CUDA, "sm_90", repository.files(repository.head()), PurePosixPath("task"))
        try:
            variants = [{"task/kernel.py": source.encode()} for source in sources]
            return await runs.race(variants, new_secret(), 300, print)
        finally:
            await runs.close()

    race = asyncio.run(raced())
    assert race.status is Status.PASSED, race.message
    found = [by_case[0] for by_case in race.configs]
    print(*found, sep="\n")
    passed, wrong = Status.PASSED, Status.WRONG_VALUES
    assert [one.status for one in found] == [passed] * 4 + [wrong, Status.COMPILE_ERROR, Status.NOT_REPLAYED]
    assert found[1].low is not None
    assert found[1].low > 1
    assert not found[1].dropped
    assert found[2].dropped
    assert found[3].same == 0


def test_a_triton_kernel_is_raced_in_a_declared_space(make_task: Callable[..., Path]) -> None:
    kernel = (
        "import torch\nimport triton\nimport triton.language as tl\n\nTILE, WARPS = 32, 4\n\n\n@triton.jit\n"
        "def scale_kernel(x, out, factor, n, T: tl.constexpr):\n"
        "    places = tl.program_id(0) * T + tl.arange(0, T)\n    inside = places < n\n"
        "    tl.store(out + places, tl.load(x + places, mask=inside) * factor, mask=inside)\n\n\n"
        "def scale(x, factor):\n    out = torch.empty_like(x)\n    grid = (triton.cdiv(x.numel(), TILE),)\n"
        "    scale_kernel[grid](x, out, factor, x.numel(), T=TILE, num_warps=WARPS)\n    return out\n"
    )
    root = make_task(kernel=kernel, toml=SCALE_TOML.replace("timeout_s = 20", 'timeout_s = 60\nfrontend = "triton"'))
    space = {"TILE": [32, 1024, 2048], "WARPS": [4, 8]}
    report = run("autotune", root, task="task", space=space, backend="cuda")
    assert report.status == "passed", report.message
    assert "confirmed by a second comparison" in report.summary
    assert report.best["TILE"] in (1024, 2048)


def test_a_profile_reads_the_clock(make_task: Callable[..., Path]) -> None:
    done = tilewright("profile", "task", "--backend", "cuda", "--root", str(make_task()))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "measured: " in done.stdout


def test_a_comparison_has_every_arm(make_task: Callable[..., Path]) -> None:
    done = tilewright(
        "compare", "task", "--backend", "cuda", "--root", str(make_task()), "--with", "mul=torch:mul",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| torch.compile |" in done.stdout
    assert "| mul |" in done.stdout
