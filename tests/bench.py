"""An evaluator for tests: sources in, results out, on one referee for many candidates."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import pytest

from tests.conftest import SCALE_KERNEL, SCALE_TASK, commit_all
from tilewright.evaluation.results import BenchmarkResult, CorrectnessResult, Environment, Status
from tilewright.evaluation.seeds import new_secret
from tilewright.repository import Repository
from tilewright.session.runs import Runs
from tilewright.task import Backend

NAME = "task/kernel.py"
ResultT = TypeVar("ResultT")


class Bench:
    """The `scale` task in a repository of its own, and its candidates judged on one backend."""

    def __init__(
        self,
        root: Path,
        backend: Backend,
        toml: str,
        kernel: str = SCALE_KERNEL,
        task: str = SCALE_TASK,
        beside: Mapping[str, str] | None = None,
    ) -> None:
        """`beside`: further files of the task, by name."""
        folder = root / "task"
        folder.mkdir(parents=True)
        (folder / "task.toml").write_text(toml)
        (folder / "task.py").write_text(task)
        (folder / "kernel.py").write_text(kernel)
        for name, text in (beside or {}).items():
            (folder / name).write_text(text)
        commit_all(root)
        self.root = root
        self._loop = asyncio.new_event_loop()
        self._runs = self._run(self._make(Repository(root), backend))

    async def _make(self, repository: Repository, backend: Backend) -> Runs:
        return Runs(backend, "sm_90", repository.files(repository.head()), PurePosixPath("task"))

    def _run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        return self._loop.run_until_complete(work)

    def check(self, source: str, limit_s: float = 120) -> CorrectnessResult:
        return self._run(self._runs.correctness({NAME: source.encode()}, new_secret(), limit_s, lambda _: None))

    def check_widely(self, source: str) -> CorrectnessResult:
        """Check a candidate as before a keep."""
        return self._run(self._runs.widely({NAME: source.encode()}, new_secret(), lambda _: None, wide_s=20))

    def environment(self) -> Environment:
        return self._run(self._runs.environment())

    def assert_fails(self, source: str, status: Status, words: str) -> None:
        """A candidate's check ends with this status and these words in its message."""
        result = self.check(source)
        assert result.status is status, result.message
        assert words in result.message, result.message

    def measure(
        self,
        source: str,
        incumbent: str | None = SCALE_KERNEL,
        limit_s: float = 120,
        confirms: bool = False,
        store: Path | None = None,
        kept: Mapping[str, Sequence[str]] | None = None,
    ) -> BenchmarkResult:
        files = {NAME: source.encode()}
        other = None if incumbent is None else {NAME: incumbent.encode()}
        return self._run(
            self._runs.benchmark(
                files, other, new_secret(), limit_s, lambda _: None, confirms=confirms, store=store, kept=kept
            )
        )

    def cancel_check(self, source: str, after_s: float) -> None:
        """Begin to check a candidate, and cancel that."""

        async def begin() -> None:
            files = {NAME: source.encode()}
            running = asyncio.ensure_future(self._runs.correctness(files, new_secret(), 120, lambda _: None))
            await asyncio.sleep(after_s)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            assert running.cancelled()

        self._run(begin())

    def close(self) -> None:
        self._run(self._runs.close())
        self._loop.close()


def opened(
    factory: pytest.TempPathFactory, backend: Backend, toml: str, kernel: str = SCALE_KERNEL, task: str = SCALE_TASK
) -> Iterator[Bench]:
    """A fixture's evaluator, which ends with it."""
    with contextlib.closing(Bench(factory.mktemp("bench") / "repo", backend, toml, kernel, task)) as bench:
        yield bench


def body(lines: str, top: str = "") -> str:
    """A candidate whose entry point is `lines`; it may call the right kernel as `right(x, factor)`."""
    inner = "\n".join(f"    {line}" for line in lines.splitlines())
    return SCALE_KERNEL.replace("def scale(", "def right(") + f"\n{top}\n\ndef scale(x, factor):\n{inner}\n"
