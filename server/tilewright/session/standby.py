"""A session's runs, which stay ready between its calls: its referee, and what that has loaded."""

from __future__ import annotations

import asyncio

from tilewright.errors import UsageError
from tilewright.evaluation.results import Environment
from tilewright.repository import Repository
from tilewright.session.records import Started
from tilewright.session.runs import Runs, runs_of


class Standby:
    """The runs of the latest session, if they were asked for."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._runs: Runs | None = None
        self._session = ""
        self._dropping: asyncio.Future[None] | None = None

    def take(self, session: str, runs: Runs) -> None:
        """Keep the runs that a session was begun with."""
        self._session, self._runs = session, runs

    def of(self, started: Started) -> Runs | None:
        """The session's runs, if they are there."""
        return self._runs if self._session == started.session else None

    async def ready(self, started: Started) -> Runs:
        """The session's runs. Raises `UsageError` where they are not made as when it began."""
        if self._runs is None or self._session != started.session:
            await self.drop()
            runs = runs_of(started, self._repository)
            try:
                need_alike(started, await runs.environment())
            except BaseException:
                await runs.close()
                raise
            self.take(started.session, runs)
        assert self._runs is not None
        return self._runs

    async def drop(self) -> None:
        """End the referee and all below it."""
        runs, self._runs = self._runs, None
        if runs is not None:
            await runs.close()

    def drop_later(self) -> None:
        """End them in the background."""
        self._dropping = asyncio.ensure_future(self.drop())

    async def close(self) -> None:
        await self.drop()
        if self._dropping is not None:
            await asyncio.shield(self._dropping)


def need_alike(started: Started, here: Environment) -> None:
    """Raises `UsageError` where runs `here` do not compare with those that a session began with."""
    then = started.environment
    for name, before, now in (
        ("the device", then.device, here.device),
        ("a candidate's confinement", then.unprotected or "confined", here.unprotected or "confined"),
    ):
        if before != now:
            raise UsageError(
                f"{name} was {before} when the session began, and is {now} here, so figures of the two do not compare: "
                "go on where it began (`tilewright session export` carries it), or end it with `tilewright session "
                "end` and start another"
            )
