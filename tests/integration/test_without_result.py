"""Runs that end without a result: whose fault that is, and how it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from tests.conftest import SCALE_KERNEL
from tests.stage import edit, play, quiet, start
from tilewright.evaluation.results import Status
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


def test_an_answer_that_is_none_is_the_candidates_crash(begun: Path) -> None:
    """And no void run, which would let it draw other seeds."""

    async def scene(loop: Loop) -> None:
        for answer in ({"status": []}, {"status": "passed", "outputs": 5}, {"status": "passed", "outputs": [[]]}):
            edit(begun, DEAF.replace("ANSWER", repr(answer)))
            assert (await loop.run_correctness(quiet)).status is Status.CRASHED
            loop.revert()
            await loop.append_result("answers itself", quiet)

    play(begun, scene)


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
