"""Runs that end without a result: whose fault that is, and how it is told."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commandline import tilewright
from tests.conftest import FASTER_KERNEL, SCALE_KERNEL
from tests.integration.test_mcp import name_of
from tests.stage import edit, play, quiet, start
from tilewright.errors import UsageError
from tilewright.evaluation.results import Status
from tilewright.isolation.supervisor import descendants
from tilewright.session.jobs import Jobs
from tilewright.session.loop import Loop

DEAF = """
import gc
import torch
from tilewright.wire.channel import Channel

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


@pytest.mark.slow
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
        assert "1 of its runs ended without a result" in (await loop.append_result("larger tiles", quiet)).summary
        assert loop.status().tried[-1].reason.endswith("; 1 of its runs ended without a result")

    play(root, scene)
    assert re.search("warn +runs +iteration 1: 1 of its runs", tilewright("verify", cwd=root).stdout)


@pytest.mark.slow
def test_a_run_that_nobody_asks_for_ends_and_the_same_call_begins_anew(make_task: Callable[..., Path]) -> None:
    root = make_task()

    async def scene(_: Loop) -> None:
        loop = Loop(root, Jobs(unattended_s=1.0))
        try:
            while (await start(loop, wait_s=5)).state == "running":
                pass
            edit(root, FASTER_KERNEL + "\nimport time; time.sleep(4)\n")
            first = await loop.run_correctness(quiet, wait_s=0.5)
            assert (first.state, first.next.rpartition("; ")[2]) == (
                "running",
                "work that no call waits for ends after 1 s",
            )
            assert "run_correctness is running" in loop.status().summary
            with pytest.raises(UsageError, match="run_correctness is running"):
                loop.revert()
            while loop.status().state == "running":
                await asyncio.sleep(0.1)
            status = loop.status()
            assert "the last run (check) was broken off and counts for nothing" in status.summary
            assert (status.phase, status.next) == ("ready", "call run_iteration on the edited files")
            assert not [pid for pid in descendants(os.getpid()) if name_of(pid) == "tw-fork-server"]
            assert (await loop.run_correctness(quiet)).status is Status.PASSED
            assert "broken off" not in loop.status().summary
        finally:
            await loop.close()

    play(root, scene)


def test_a_baseline_that_ended_the_session_unattended_is_told_to_the_same_call(make_task: Callable[..., Path]) -> None:
    """And does not begin another session, whose end no call would wait for either."""
    root = make_task(kernel=SCALE_KERNEL.replace("values * factor", "values + factor"))

    async def scene(loop: Loop) -> None:
        assert (await start(loop, wait_s=0.01)).state == "running"
        while loop.jobs._job is not None and not loop.jobs._job.done:
            await asyncio.sleep(0.1)
        assert "the baseline itself failed" in (await start(loop)).summary
        assert len(list(root.glob("sandbox/*/journal.jsonl"))) == 1
        assert (await start(loop, wait_s=0.01)).state == "running"  # once told, it begins anew

    play(root, scene)


async def _fails(*_: Any, **__: Any) -> Any:
    raise OSError("gone")
