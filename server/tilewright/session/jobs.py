"""Work under way: it belongs to the server, not to the call that began it.

A call waits for a job and may leave it; the same call again goes on waiting, and gets the outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from tilewright.errors import UsageError

WAIT_S = 240.0
"""How long one call waits; some clients cut a call at 300 s, whatever progress arrives."""
UNATTENDED_S = 120.0
"""How long work goes on that no call waits for."""
HEARTBEAT_S = 2.0
SERVER_ENDED = "the server ended during the run"
ENDING_S = 30.0
"""How long a server that ends waits for its work to clean up."""

ResultT = TypeVar("ResultT")
Progress = Callable[[str], Awaitable[None]]


class Job:
    """One piece of work. `what` is the tool that asks for it, `key` identifies its content."""

    def __init__(
        self, what: str, key: str, work: Callable[[Job], Awaitable[Any]], turn: asyncio.Lock, unattended_s: float
    ) -> None:
        """The work begins when it has the `turn`, and ends if no call waits for it for `unattended_s`."""
        self.what = what
        self.key = key
        self.message = "starting"
        self.result: Any = None
        """What the work returned, once it is done."""
        self._unattended_s = unattended_s
        self._calls = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._ending = ""
        self._told = False

        async def run() -> None:
            async with turn:
                self.result = await work(self)

        self._task = asyncio.ensure_future(run())

    @property
    def done(self) -> bool:
        return self._task.done()

    @property
    def attended(self) -> bool:
        """Whether a call waits for it."""
        return self._calls > 0

    @property
    def busy(self) -> str:
        """What to say to a call that cannot go beside it."""
        return f"{self.what} is running ({self.message}); call it again to wait for it"

    @property
    def again(self) -> str:
        """What to say to a call that has waited long enough."""
        return (
            f"call {self.what} again, the same way, to go on waiting; work that no call waits for ends after "
            f"{self._unattended_s:g} s"
        )

    def answers(self, what: str, key: str) -> bool:
        """Whether a call of that tool and content gets its outcome from this job."""
        return (self.what, self.key) == (what, key) and not self._ending and not (self.done and self._told)

    def tell(self, text: str) -> None:
        """Note how far the work is."""
        self.message = text

    def mark_told(self) -> None:
        """Note that the outcome was told in another way: the same call again begins anew."""
        self._told = True

    async def attend(self, wait_s: float, progress: Progress) -> bool:
        """Wait for the end and report progress meanwhile; False if `wait_s` passed first.

        Raises what the work raised, and `UsageError` if it was broken off: a `CancelledError` of the work's would be
        taken for the caller's own. A caller that is cancelled leaves, and the work goes on.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        with self._attended():
            while not self.done and loop.time() < deadline:
                await asyncio.wait({self._task}, timeout=min(HEARTBEAT_S, max(deadline - loop.time(), 0.01)))
                if not self.done:
                    await progress(self.message)
        if not self.done:
            return False
        self._told = True
        if self._task.cancelled():
            raise UsageError(f"{self.what} was broken off: {self._ending or 'it was cancelled'}; call it again")
        self._task.result()
        return True

    @contextlib.contextmanager
    def _attended(self) -> Iterator[None]:
        self._calls += 1
        if self._alarm is not None:
            self._alarm.cancel()
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls and not self.done:
                why = f"no call waited for it for {self._unattended_s:g} s"
                self._alarm = asyncio.get_running_loop().call_later(self._unattended_s, self.end, why)

    def end(self, why: str) -> None:
        """Break the work off, once; it keeps its turn until it has cleaned up."""
        if not self.done and not self._ending:
            self._ending = why
            self._task.cancel(why)


class Jobs:
    """The work of one server: one piece at a time, since each wants the machine for itself."""

    def __init__(self, unattended_s: float = UNATTENDED_S) -> None:
        self._unattended_s = unattended_s
        self._turn = asyncio.Lock()
        self._job: Job | None = None

    def start(self, what: str, key: str, work: Callable[[Job], Awaitable[Any]]) -> Job:
        """The job that answers this call, which is to attend it at once: the one under way, the last one if no call was
        told its outcome, or a new one. Work that no call waits for makes way; raises `UsageError` if a call waits for
        it.
        """
        job = self._job
        if job is not None and job.answers(what, key):
            return job
        if job is not None and not job.done:
            if job.attended:
                raise UsageError(job.busy)
            job.end(f"no call waited for it, and {what} needed the machine")
        self._job = Job(what, key, work, self._turn, self._unattended_s)
        return self._job

    async def close(self) -> None:
        """End what is under way, and wait until it has cleaned up."""
        if self._job is not None:
            self._job.end(SERVER_ENDED)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENDING_S), self._turn:
                pass


async def attended(work: Callable[[Callable[[str], None]], Awaitable[ResultT]], progress: Progress) -> ResultT:
    """What the work returns. Meanwhile `progress` gets what the work tells."""
    job = Jobs().start("the work", "", lambda job: work(job.tell))
    await job.attend(math.inf, progress)
    result: ResultT = job.result
    return result


async def in_thread(function: Callable[..., ResultT], *arguments: object) -> ResultT:
    """What the function returns, run in a thread. A cancelled caller leaves only when the thread is done: nothing that
    comes after meets files that it still writes."""
    running = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise
