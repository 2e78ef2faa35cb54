"""Single runs of a check for `tilewright init`, which asks for one after another: why a function does not pass each."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from contextlib import AbstractContextManager

from tilewright.evaluation.correctness import Run, check_case
from tilewright.evaluation.pool import WorkerFailure, WorkerHandle
from tilewright.evaluation.results import Status
from tilewright.evaluation.seeds import Seeds
from tilewright.evaluation.taskcode import TaskCode
from tilewright.task import Backend, Case, TaskError, Values, case_label

REASON_LIMIT = 140
CPU_BYTES = 4 * 2**20
CPU_FLOPS = 2**29
"""Of a case, the most with which the hundred runs of `init` on the CPU take no minutes."""
MODEL_BYTES = 2 * 2**30
"""Of a case, the most that a session without a GPU models in minutes and in this machine's memory."""


class SingleRuns:
    """Runs on a worker that stays loaded. A worker that fails is replaced."""

    def __init__(
        self, code: TaskCode, backend: Backend, start: Callable[[], AbstractContextManager[list[WorkerHandle]]]
    ) -> None:
        """`start` gives a context manager of one worker that has loaded the function."""
        self._code = code
        self._backend = backend
        self._start = start
        self._worker: WorkerHandle | None = None
        self._ending = contextlib.ExitStack()

    def why(self, case: Case, values: Values) -> str | None:
        """Why a run does not pass; empty if it does, None if it is too large for the CPU. The same run has the same
        seed in each `init`."""
        if self._backend is Backend.CPU and not self._within(case, CPU_BYTES, CPU_FLOPS):
            return None
        run = Run(case, False, Seeds(f"init {case_label(case)} {values}").next(), values)
        try:
            if self._worker is None:
                [self._worker] = self._ending.enter_context(self._start())
            check = check_case(self._worker, self._code, run, self._backend)
        except TaskError as error:
            return shortened(str(error).removeprefix("task.py: "))
        except WorkerFailure as failure:
            self.close()
            return shortened(str(failure))
        if self._worker.ended or (self._backend is Backend.CUDA and check.status.is_crash):
            self.close()
        return "" if check.status is Status.PASSED else shortened(check.message or str(check.status))

    def modelled(self) -> bool:
        """Whether a session without a GPU can model all visible cases."""
        return all(self._within(entry.case, MODEL_BYTES) for entry in self._code.task.file.cases)

    def close(self) -> None:
        """End the worker."""
        self._ending.close()
        self._worker = None

    def _within(self, case: Case, most: int, flops: float = float("inf")) -> bool:
        try:
            work = self._code.work(case)
        except TaskError:  # the run says why
            return True
        return work.bytes <= most and work.flops <= flops


def shortened(why: str) -> str:
    """The first part of a reason on one line, with the names of files instead of their paths."""
    text = re.sub(r'"?[\w.\-/]*/([\w.-]+\.py)"?', r"\1", " ".join(re.split(r";|: they were never", why)[0].split()))
    return text if len(text) <= REASON_LIMIT else text[: REASON_LIMIT - 1] + "…"
