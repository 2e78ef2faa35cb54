"""Work that belongs to the server: calls come, leave and come back; only its end by the server's hand breaks it off."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.stage import quiet
from tilewright.errors import UsageError
from tilewright.session.jobs import Job, Jobs, attended, in_thread


class Work:
    """Fake work that ends when it is let go; counts how often it began, and notes why it was broken off."""

    def __init__(self, error: Exception | None = None) -> None:
        self.begun = 0
        self.ended: list[str] = []
        self.cleans_up_s = 0.0
        self.let_go = asyncio.Event()
        self._error = error

    async def __call__(self, job: Job) -> None:
        self.begun += 1
        job.tell("half way")
        try:
            await self.let_go.wait()
        except asyncio.CancelledError as error:
            await asyncio.sleep(self.cleans_up_s)
            self.ended.append(str(error))
            raise
        if self._error is not None:
            raise self._error
        self.ended.append("")


def play(scene: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await scene()

    asyncio.run(limited())


def call(jobs: Jobs, what: str, key: str, work: Work, wait_s: float = 60) -> asyncio.Task[bool]:
    """A call as the server makes one: it asks for the job, and attends it at once."""

    async def wait() -> bool:
        return await jobs.start(what, key, work).attend(wait_s, quiet)

    return asyncio.ensure_future(wait())


async def cancelled(task: asyncio.Task[Any]) -> None:
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_cancelled_call_leaves_and_the_same_call_gets_the_result() -> None:
    async def scene() -> None:
        jobs, work = Jobs(), Work()
        await cancelled(call(jobs, "check", "a", work))
        again = call(jobs, "check", "a", work)
        await asyncio.sleep(0.01)
        work.let_go.set()
        assert await again
        assert (work.begun, work.ended) == (1, [""])

    play(scene)


def test_work_that_is_broken_off_cancels_no_call() -> None:
    """A `CancelledError` in a call means to the SDK that the connection is over."""

    async def scene() -> None:
        jobs, work = Jobs(), Work()
        waiting = [call(jobs, "check", "a", work) for _ in range(2)]
        await asyncio.sleep(0.01)
        await jobs.close()
        for task in waiting:
            with pytest.raises(UsageError, match="check was broken off: the server ended during the run"):
                await task
        assert work.ended == ["the server ended during the run"]

        async def cancels_itself(_: Job) -> None:
            raise asyncio.CancelledError

        with pytest.raises(UsageError, match="check was broken off"):
            await jobs.start("check", "b", cancels_itself).attend(5, quiet)

    play(scene)


def test_work_that_nobody_asks_for_ends() -> None:
    async def scene() -> None:
        jobs, work = Jobs(unattended_s=0.3), Work()
        for _ in range(4):  # each call begins the time anew
            await cancelled(call(jobs, "check", "a", work))
            await asyncio.sleep(0.15)
        assert work.ended == []
        assert not await jobs.start("check", "a", work).attend(0.01, quiet)  # a call that waited long enough left, too
        await asyncio.sleep(0.5)
        assert (work.begun, work.ended) == (1, ["no call waited for it for 0.3 s"])
        again = call(jobs, "check", "a", work)
        await asyncio.sleep(0.5)
        work.let_go.set()
        assert await again
        assert work.begun == 2

    play(scene)


def test_a_second_call_keeps_the_work_alive_when_the_first_leaves() -> None:
    async def scene() -> None:
        jobs, work = Jobs(unattended_s=0.05), Work()
        first, second = call(jobs, "check", "a", work), call(jobs, "check", "a", work)
        await cancelled(first)
        await asyncio.sleep(0.2)
        work.let_go.set()
        assert await second
        assert work.begun == 1

    play(scene)


def test_unattended_work_makes_way_and_attended_work_does_not() -> None:
    async def scene() -> None:
        jobs, old, new = Jobs(), Work(), Work()
        waiting = call(jobs, "check", "a", old)
        await asyncio.sleep(0.01)
        for what, key in (("measure", "a"), ("check", "b")):
            with pytest.raises(UsageError, match=r"check is running \(half way\); call it again to wait for it"):
                jobs.start(what, key, new)
        await cancelled(waiting)
        old.cleans_up_s = 0.2
        running = call(jobs, "measure", "a", new)
        await asyncio.sleep(0.1)
        assert (old.ended, new.begun) == ([], 0)  # what cleans up still has the machine
        with pytest.raises(UsageError, match="measure is running"):
            await call(jobs, "check", "a", old)
        await asyncio.sleep(0.2)
        assert (old.ended, new.begun) == (["no call waited for it, and measure needed the machine"], 1)
        new.let_go.set()
        assert await running

    play(scene)


def test_calls_that_leave_in_turn_never_run_two_works_at_once() -> None:
    async def scene() -> None:
        jobs, at_once, most = Jobs(), 0, 0
        source = random.Random(20261124)

        async def work(job: Job) -> None:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            try:
                await asyncio.sleep(source.uniform(0, 0.02))
            finally:
                at_once -= 1

        for _ in range(200):
            task = asyncio.ensure_future(jobs.start("check", source.choice("abc"), work).attend(60, quiet))
            await asyncio.sleep(source.choice([0, 0, 0.001, 0.005]))
            task.cancel()
            await asyncio.wait({task})
        await jobs.close()
        assert (most, at_once) == (1, 0)

    play(scene)


def test_an_outcome_that_no_call_was_told_is_told_to_the_next() -> None:
    async def scene() -> None:
        jobs, failing = Jobs(), Work(OSError("gone"))
        await cancelled(call(jobs, "check", "a", failing))
        failing.let_go.set()
        await asyncio.sleep(0.01)
        with pytest.raises(OSError, match="gone"):
            await jobs.start("check", "a", failing).attend(5, quiet)
        assert failing.begun == 1
        with pytest.raises(OSError, match="gone"):  # told once: the next call tries again
            await jobs.start("check", "a", failing).attend(5, quiet)
        assert failing.begun == 2

    play(scene)


def test_what_work_tells_is_reported_and_its_result_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.session.jobs.HEARTBEAT_S", 0.001)

    async def scene() -> None:
        heard = asyncio.Event()

        async def progress(text: str) -> None:
            if text == "run 3 of 7":
                heard.set()

        async def work(tell: Callable[[str], None]) -> int:
            tell("run 3 of 7")
            await heard.wait()
            return 7

        assert await attended(work, progress) == 7

    play(scene)


def test_a_thread_is_never_left_behind() -> None:
    async def scene() -> None:
        entered, leave = threading.Event(), threading.Event()

        def slow() -> None:
            entered.set()
            leave.wait(10)

        task = asyncio.ensure_future(in_thread(slow))
        await asyncio.to_thread(entered.wait)
        task.cancel()
        await asyncio.sleep(0.05)
        assert not task.done()
        leave.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    play(scene)
