"""Evaluations under way: a call waits for one, may leave it, and the same call again goes on waiting."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from tilewright.session.checkout import Misuse

WAIT_S = 240.0
"""How long one call waits; some clients cut a call at 300 s, whatever progress arrives."""
HEARTBEAT_S = 2.0

ResultT = TypeVar("ResultT")
Progress = Callable[[str], Awaitable[None]]


class Job:
    """One evaluation. `what` names it for people, `key` identifies its content."""

    def __init__(self, what: str, key: str, work: Callable[[Job], Awaitable[None]]) -> None:
        self.what = what
        self.key = key
        self.message = "starting"
        self._task: asyncio.Future[None] = asyncio.ensure_future(work(self))

    @property
    def done(self) -> bool:
        return self._task.done()

    def tell(self, text: str) -> None:
        """Note how far the work is."""
        self.message = text

    async def attend(self, wait_s: float, progress: Progress) -> bool:
        """Wait for the end and report progress meanwhile; False if `wait_s` passed first.

        Raises what the work raised. A cancelled caller ends the work, and all that it started, before it leaves.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        try:
            while not self.done and loop.time() < deadline:
                await asyncio.wait({self._task}, timeout=min(HEARTBEAT_S, max(deadline - loop.time(), 0.01)))
                if not self.done:
                    await progress(self.message)
        except asyncio.CancelledError:
            await self.cancel()
            raise
        if self.done:
            self._task.result()
        return self.done

    async def cancel(self) -> None:
        """End the work and wait until it has cleaned up, even where the caller's own scope is cancelled."""
        import anyio

        self._task.cancel()
        with anyio.CancelScope(shield=True), contextlib.suppress(BaseException):
            await asyncio.wait({self._task}, timeout=30)


class Results(Generic[ResultT]):
    """Results of a tool by the content that they are of, worked out one at a time; the latest are kept."""

    def __init__(self, tool: str, noun: str, is_void: Callable[[ResultT], bool], kept: int = 8) -> None:
        """`noun` names one piece of work for people; what `is_void` was the machine's fault, and is worked out anew."""
        self._tool = tool
        self._noun = noun
        self._is_void = is_void
        self._kept = kept
        self._job: Job | None = None
        self._done: OrderedDict[str, ResultT] = OrderedDict()

    @property
    def message(self) -> str:
        """How far the work under way is."""
        return self._job.message if self._job is not None else ""

    async def get(
        self, key: str, work: Callable[[Job], Awaitable[ResultT]], wait_s: float, progress: Progress
    ) -> ResultT | None:
        """The result of that key; None where it takes longer than `wait_s`, and goes on. Raises `Misuse` while other
        work is under way, and what the work raises."""
        if key not in self._done or self._is_void(self._done[key]):
            if self._job is not None and not self._job.done and self._job.key != key:
                raise Misuse(
                    f"another {self._noun} is under way ({self.message}); call {self._tool} again when it is done"
                )

            async def keep(job: Job) -> None:
                self._done[key] = await work(job)
                while len(self._done) > self._kept:
                    self._done.popitem(last=False)

            if self._job is None or self._job.done:
                self._job = Job(self._tool, key, keep)
            if not await self._job.attend(wait_s, progress):
                return None
        return self._done[key]

    async def close(self) -> None:
        if self._job is not None and not self._job.done:
            await self._job.cancel()
