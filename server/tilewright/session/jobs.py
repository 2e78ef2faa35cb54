"""Evaluations under way: a call waits for one, may leave it, and the same call again goes on waiting."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

WAIT_S = 240.0
"""How long one call waits; some clients cut a call at 300 s, whatever progress arrives."""
HEARTBEAT_S = 2.0

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
