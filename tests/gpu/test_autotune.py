"""The race of a search, and a profile, on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.test_cli import tilewright
from tilewright.autotune import search

pytestmark = pytest.mark.gpu


def test_a_race_finds_the_larger_tile(make_task: Callable[..., Path]) -> None:
    report = search("task", {"TILE": [16, 64, 1024, 4096], "occupancy": [1, 8]}, root=make_task(), backend="cuda")
    assert report.status == "passed", report.message
    assert "confirmed in fresh processes" in report.summary
    assert report.best["TILE"] in (1024, 4096)
    assert any(one.place == "measured" for one in report.configs)


def test_a_profile_reads_the_clock(make_task: Callable[..., Path]) -> None:
    done = tilewright("profile", "task", "--backend", "cuda", "--root", str(make_task()))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "measured: " in done.stdout


def test_a_comparison_has_every_arm(make_task: Callable[..., Path]) -> None:
    done = tilewright("compare", "task", "--backend", "cuda", "--root", str(make_task()))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| torch.compile |" in done.stdout
