"""A session's evaluations: the evaluator and the snapshots behind them, within the iteration's time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from tilewright.evaluation.evaluator import Evaluator, EvaluatorDied, Tell
from tilewright.evaluation.results import BenchmarkResult, CorrectnessResult, Environment, Status
from tilewright.evaluation.snapshot import SnapshotStore
from tilewright.repository import Files
from tilewright.session.checkout import Misuse
from tilewright.task import Backend, TaskError, Work

HIDDEN_CASES = 3
START_TIMEOUT_S = 300.0


def backend_here() -> Backend:
    """`cuda` where the driver shows a GPU, else `cpu`."""
    from tilewright.gpu.telemetry import first_gpu

    return Backend.CUDA if first_gpu() is not None else Backend.CPU


class Runs:
    """Runs on one backend, of candidates of one task: `protected` are the baseline commit's files."""

    def __init__(self, backend: Backend, arch: str, protected: Files, task_folder: PurePosixPath) -> None:
        """Raises `Misuse` where the repository is too large to take snapshots of."""
        self.backend = backend
        self._evaluator = Evaluator(backend, arch)
        try:
            self._store = SnapshotStore(self._evaluator.folder, protected, task_folder)
        except ValueError as error:
            raise Misuse(str(error)) from None

    async def environment(self) -> Environment:
        """Where the runs happen. Raises `Misuse` where the referee cannot start."""
        with _startup():
            reply = await self._evaluator.request("environment", lambda _: None, START_TIMEOUT_S)
        return Environment.model_validate(reply["environment"])

    async def work(self) -> list[Work]:
        """The work of each benchmark case. Raises `Misuse` where the task's own code fails."""
        with _startup():
            reply = await self._evaluator.request("work", lambda _: None, START_TIMEOUT_S, task=self._task())
        return [Work(**work) for work in reply["work"]]

    async def correctness(self, files: Files, secret: str, limit_s: float, tell: Tell) -> CorrectnessResult:
        """Check a candidate. Running out of `limit_s` seconds, or a referee that dies, is a result with a status."""
        reply = await self._run(
            "correctness", limit_s, tell, candidate=self._snapshot(files), secret=secret, hidden=HIDDEN_CASES
        )
        return CorrectnessResult.model_validate(reply)

    async def benchmark(
        self, files: Files, incumbent: Files | None, secret: str, limit_s: float, tell: Tell
    ) -> BenchmarkResult:
        """Measure a candidate against the incumbent, or alone."""
        reply = await self._run(
            "benchmark",
            limit_s,
            tell,
            candidate=self._snapshot(files),
            incumbent=self._snapshot(incumbent) if incumbent else None,
            secret=secret,
        )
        return BenchmarkResult.model_validate(reply)

    async def dump(
        self, files: Files, archs: list[str], compile_s: float, limit_s: float, tell: Tell
    ) -> dict[str, Any]:
        """Compile what a candidate launches; `cpu` backend only."""
        try:
            return await self._evaluator.request(
                "dump", tell, limit_s,
                task=self._task(), candidate=self._snapshot(files), archs=archs, compile_s=compile_s,
            )  # fmt: skip
        except TaskError as error:
            raise Misuse(str(error)) from None
        except TimeoutError:
            return {"status": Status.TIMEOUT, "message": f"the compiler did not finish within {limit_s:.0f} s"}
        except EvaluatorDied as error:
            return {"status": Status.VOID, "message": str(error)}

    async def close(self) -> None:
        await self._evaluator.close()

    async def _run(self, op: str, limit_s: float, tell: Tell, **message: Any) -> dict[str, Any]:
        try:
            reply = await self._evaluator.request(op, tell, limit_s, task=self._task(), **message)
        except TaskError as error:
            raise Misuse(str(error)) from None
        except TimeoutError:
            text = "the evaluation time of this iteration is used up"
            return {"status": Status.TIMEOUT, "message": text, "seconds": limit_s}
        except EvaluatorDied as error:
            return {"status": Status.VOID, "message": str(error)}
        result: dict[str, Any] = reply["result"]
        return result

    def _snapshot(self, files: Files) -> dict[str, Any]:
        return self._store.snapshot(files).model_dump(mode="json")

    def _task(self) -> str:
        return str(self._store.task_folder())


@contextlib.contextmanager
def _startup() -> Iterator[None]:
    try:
        yield
    except (TaskError, EvaluatorDied) as error:
        raise Misuse(f"the session cannot start: {error}") from None
    except TimeoutError:
        raise Misuse(f"the session cannot start: the referee did not answer within {START_TIMEOUT_S:.0f} s") from None
