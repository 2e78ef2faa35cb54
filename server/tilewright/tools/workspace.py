"""What the tools of one checkout work on. Each part is made at the first call that needs it."""

from __future__ import annotations

import asyncio
import math
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.errors import UsageError
from tilewright.session.jobs import WAIT_S
from tilewright.tools.tool import ReportT, Tell, Tool

if TYPE_CHECKING:
    from tilewright.autotune.tuner import Tuner
    from tilewright.session.dumping import Dumper
    from tilewright.session.loop import Loop


class Workspace:
    """The checkout at `root`, or why there is none, which each tool then says."""

    def __init__(self, root: Path | UsageError, wait_s: float = WAIT_S, whole: bool = False) -> None:
        """`wait_s`: how long a call waits for its work. `whole`: texts in answers are not cut to an agent's context."""
        self._root = root
        self.wait_s = wait_s
        self.whole = whole

    @cached_property
    def loop(self) -> Loop:
        from tilewright.session.loop import Loop

        if isinstance(self._root, UsageError):
            raise self._root
        return Loop(self._root)

    @cached_property
    def dumper(self) -> Dumper:
        from tilewright.session.dumping import Dumper

        return Dumper(self.loop.checkout, self.loop.jobs)

    @cached_property
    def tuner(self) -> Tuner:
        from tilewright.autotune.tuner import Tuner

        return Tuner(self.loop)

    async def close(self) -> None:
        """End all work, and let go of the checkout."""
        if "loop" in vars(self):
            await self.loop.close()
        if "dumper" in vars(self):
            await self.dumper.close()


def call(tool: Tool[Any, ReportT], root: Path, arguments: dict[str, Any], tell: Tell) -> ReportT:
    """The report of one call, however long its work takes. Raises `UsageError`."""

    async def work() -> ReportT:
        workspace = Workspace(root.resolve(), wait_s=math.inf, whole=True)
        try:
            return await tool.work(workspace, tool.parse(arguments), tell)
        finally:
            await workspace.close()

    return asyncio.run(work())
