"""The race of a search, and a profile, on a GPU."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest
from cutile_cache._cache import cache_entries

from tests.commandline import tilewright
from tests.conftest import SCALE_TOML
from tilewright.autotune import search
from tilewright.evaluation.results import Status
from tilewright.evaluation.seeds import new_secret
from tilewright.evaluation.snapshot import content_id
from tilewright.repository import Repository
from tilewright.session.runs import with_model
from tilewright.task import Backend

pytestmark = pytest.mark.gpu


def test_a_race_finds_the_larger_tile(make_task: Callable[..., Path]) -> None:
    report = search("task", {"TILE": [16, 64, 1024, 4096], "occupancy": [1, 8]}, root=make_task(), backend="cuda")
    assert report.status == "passed", report.message
    assert "confirmed by a second comparison" in report.summary
    assert report.best["TILE"] in (1024, 4096)
    assert any(one.place == "measured" for one in report.configs)


def test_a_race_compiles_nothing_that_the_survey_has_compiled(make_task: Callable[..., Path]) -> None:
    repository = Repository(make_task())
    kernel = repository.files(repository.head())["task/kernel.py"].decode()
    variants = [{"task/kernel.py": kernel.replace("TILE = 64", f"TILE = {tile}").encode()} for tile in (16, 32, 64)]
    assert len({content_id(files) for files in variants}) == 3

    async def raced() -> list[list[str]]:
        protected, task = repository.files(repository.head()), PurePosixPath("task")
        async with with_model(Backend.CUDA, "sm_90", protected, task) as (measuring, modelling):
            surveyed = await modelling.survey(variants, Backend.CUDA, 300, print)
            assert surveyed.status is Status.PASSED, surveyed.message
            await measuring.take_over(modelling, variants)
            race = await measuring.race(variants, new_secret(), 300, print)
            assert [one.status for by_case in race.configs for one in by_case] == [Status.PASSED] * 3
            caches = [
                [str(runs._store.cache(content_id(files))) for files in variants] for runs in (modelling, measuring)
            ]
            return [[one.key for cache in listed for one in cache_entries(cache)] for listed in caches]

    before, after = asyncio.run(raced())
    assert len(before) == 3
    assert sorted(after) == sorted(before)


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
    report = search("task", {"TILE": [32, 1024, 2048], "WARPS": [4, 8]}, root=root, backend="cuda")
    assert report.status == "passed", report.message
    assert "confirmed by a second comparison" in report.summary
    assert report.best["TILE"] in (1024, 2048)


def test_a_profile_reads_the_clock(make_task: Callable[..., Path]) -> None:
    done = tilewright("profile", "task", "--backend", "cuda", "--root", str(make_task()))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "measured: " in done.stdout


def test_a_comparison_has_every_arm(make_task: Callable[..., Path]) -> None:
    done = tilewright("compare", "task", "--backend", "cuda", "--root", str(make_task()))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| torch.compile |" in done.stdout
