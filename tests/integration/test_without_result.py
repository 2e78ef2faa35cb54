"""Runs that end without a result: whose fault that is, and how it is told."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FASTER_KERNEL
from tests.integration.test_cli import tilewright
from tests.stage import edit, play, quiet, start
from tilewright.evaluation.results import Status
from tilewright.session.loop import Loop

DEAF = """
import gc
import torch
from tilewright.evaluation.channel import Channel

CHANNEL = next(one for one in gc.get_objects() if type(one) is Channel)


def scale(x, factor):
    CHANNEL.send(ANSWER)
    return torch.empty_like(x)
"""


@pytest.mark.parametrize(
    "answer",
    [{"status": []}, {"status": {}}, {"status": "passed", "outputs": 5}, {"status": "passed", "outputs": [[]]}],
)
def test_an_answer_that_is_none_is_the_candidates_crash(make_task: Callable[..., Path], answer: dict[str, Any]) -> None:
    """And no void run, which would let it draw other seeds."""
    root = make_task()

    async def scene(loop: Loop) -> None:
        await start(loop)
        edit(root, DEAF.replace("ANSWER", repr(answer)))
        assert (await loop.run_correctness(quiet)).status is Status.CRASHED

    play(root, scene)


def test_runs_without_a_result_are_told_beside_the_row(
    make_task: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_task()

    async def scene(loop: Loop) -> None:
        await start(loop)
        edit(root, FASTER_KERNEL)
        with monkeypatch.context() as patch:
            patch.setattr("tilewright.session.runs.Runs.correctness", _fails)
            with pytest.raises(OSError, match="gone"):
                await loop.run_correctness(quiet)
        assert (await loop.run_correctness(quiet)).status is Status.PASSED
        loop.revert()
        assert "1 of its runs ended without a result" in loop.append_result("larger tiles").summary
        assert loop.status().tried[-1].reason.endswith("; 1 of its runs ended without a result")

    play(root, scene)
    assert re.search("warn +runs +iteration 1: 1 of its runs", tilewright("verify", cwd=root).stdout)


async def _fails(*_: Any, **__: Any) -> Any:
    raise OSError("gone")
