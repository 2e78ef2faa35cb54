"""The race of a search, and a profile, on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import SCALE_TOML
from tests.integration.test_cli import tilewright
from tilewright.autotune import search

pytestmark = pytest.mark.gpu


def test_a_race_finds_the_larger_tile(make_task: Callable[..., Path]) -> None:
    report = search("task", {"TILE": [16, 64, 1024, 4096], "occupancy": [1, 8]}, root=make_task(), backend="cuda")
    assert report.status == "passed", report.message
    assert "confirmed in fresh processes" in report.summary
    assert report.best["TILE"] in (1024, 4096)
    assert any(one.place == "measured" for one in report.configs)


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
    assert "confirmed in fresh processes" in report.summary
    assert report.best["TILE"] in (1024, 2048)


def test_a_profile_reads_the_clock(make_task: Callable[..., Path]) -> None:
    done = tilewright("profile", "task", "--backend", "cuda", "--root", str(make_task()))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "measured: " in done.stdout


def test_a_comparison_has_every_arm(make_task: Callable[..., Path]) -> None:
    done = tilewright("compare", "task", "--backend", "cuda", "--root", str(make_task()))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| torch.compile |" in done.stdout
