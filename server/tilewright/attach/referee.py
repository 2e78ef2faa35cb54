"""A referee that also finds out which sizes and values a function takes, by the runs of a session's own check."""

from __future__ import annotations

import sys

from tilewright.isolation.fork_server import Servers
from tilewright.isolation.supervisor import die_with_parent

if __name__ == "__main__":  # before a worker's imports are joined by the referee's own
    die_with_parent(int(sys.argv[3]))
    servers = Servers.begun(sys.argv[1], int(sys.argv[4]))

import contextlib
import math
import re
import time
from contextlib import AbstractContextManager
from typing import Any

from tilewright.attach.sizes import CUTS, SECRET, Dimension, Search, Sizes, first_case
from tilewright.evaluation.correctness import Run, check_case
from tilewright.evaluation.pool import WorkerFailure, WorkerHandle
from tilewright.evaluation.referee import Referee
from tilewright.evaluation.referee import main as serve
from tilewright.evaluation.results import Status
from tilewright.evaluation.seeds import Seeds
from tilewright.evaluation.taskcode import TaskCode
from tilewright.task import Backend, Case, TaskError, Values, case_label
from tilewright.wire.channel import Message

REASON_LIMIT = 140
CPU_BYTES = 4 * 2**20
CPU_FLOPS = 2**29
"""Of a case, the most with which the hundred runs of `init` on the CPU take no minutes."""
MODEL_BYTES = 2 * 2**30
"""Of a case, the most that a session without a GPU models in minutes and in this machine's memory."""
LONG = ((2100, 5), (2048, 8))
"""Sizes of the last dimension and of all others, for a case in which loops over the last turn more than once."""


class TrialReferee(Referee):
    """Answers one more request."""

    def trials(self, message: Message) -> Message:
        """What the function passes: its first case, a long one, hidden ranges, and the classes of values left out."""
        code = self._task(message)
        with self._device(), contextlib.closing(Trials(self, code, message)) as trials:
            return {"answer": answer_of(trials, code, message, self._backend) | {"runs": trials.runs}}

    def worker(self, code: TaskCode, message: Message, deadline: float) -> AbstractContextManager[list[WorkerHandle]]:
        """A worker that has loaded the function."""
        return self._workers(code, message["arms"][0], deadline)


class Trials:
    """Single runs of a check, each made once. A worker that fails is replaced."""

    def __init__(self, referee: TrialReferee, code: TaskCode, message: Message) -> None:
        self.runs = 0
        self.wrong = False
        """Whether a run gave other values than the reference."""
        self._referee, self._code, self._message = referee, code, message
        self._deadline = time.monotonic() + message["limit_s"]
        self._known: dict[str, str] = {}
        self._worker: WorkerHandle | None = None
        self._ending = contextlib.ExitStack()

    def why(self, case: Case, values: Values) -> str:
        """Why a run does not pass; empty if it does. Raises `TaskError` if the time is up."""
        label = f"{case_label(case)} {values}"
        if label not in self._known:
            if time.monotonic() > self._deadline:
                raise TaskError(
                    f"trying {self._code.task.file.entry} takes too long ({self.runs} runs in "
                    f"{self._message['limit_s']:.0f} s): give smaller shapes, or --range for each dimension"
                )
            self.runs += 1
            self._known[label] = shortened(self._outcome(Run(case, False, Seeds(f"{SECRET} {label}").next(), values)))
        return self._known[label]

    def fits(self, case: Case) -> bool:
        """Whether a case is small enough for the CPU."""
        return self._code.device != "cpu" or self._within(case, CPU_BYTES, CPU_FLOPS)

    def modelled(self, case: Case) -> bool:
        """Whether a session without a GPU can model a case."""
        return self._within(case, MODEL_BYTES, math.inf)

    def close(self) -> None:
        """End the worker."""
        self._ending.close()
        self._worker = None

    def _within(self, case: Case, most: int, flops: float) -> bool:
        try:
            work = self._code.work(case)
        except TaskError:  # the run says why
            return True
        return work.bytes <= most and work.flops <= flops

    def _outcome(self, run: Run) -> str:
        code, gpu = self._code, self._code.device == "cuda"
        try:
            if self._worker is None:
                workers = self._referee.worker(code, self._message, self._deadline)
                [self._worker] = self._ending.enter_context(workers)
            check = check_case(self._worker, code, run, Backend.CUDA if gpu else Backend.CPU)
        except TaskError as error:
            return str(error).removeprefix("task.py: ")
        except WorkerFailure as failure:
            if gpu or self._worker is None or self._worker.ended:
                self.close()
            return str(failure)
        self.wrong = self.wrong or check.status.is_incorrect
        return "" if check.status is Status.PASSED else check.message or str(check.status)


def answer_of(trials: Trials, code: TaskCode, message: Message, backend: Backend) -> dict[str, Any]:
    """The answer to a request, as JSON."""
    dimensions = {name: Dimension(**one) for name, one in message["dimensions"].items()}
    visible = [entry.case for entry in code.task.file.cases]
    full = visible[0]
    sizes = {name: one.size for name, one in dimensions.items()}
    reasons = []
    for cut in first_case(dimensions, (*CUTS, 4, 1, *[max(sizes.values(), default=1)] * (backend is Backend.CUDA))):
        if not trials.fits(full | cut):
            reasons.append(
                f"there is no GPU here, and even small inputs take over {CPU_BYTES >> 20} MiB or "
                f"{CPU_FLOPS / 1e9:.1f} GFLOP"
            )
        elif not (reason := trials.why(full | cut, Values.DRAWN)):
            break
        else:
            reasons.append(f"with {case_label({**cut})} {reason}" if cut else reason)
    else:
        return {"failed": reasons[0], "wrong": trials.wrong, "case": 0}
    variants = {repr({**case, **cut}): (number, case | cut) for number, case in reversed([*enumerate(visible)])}
    for number, case in variants.values():
        if reason := trials.why(case, Values.DRAWN):
            return {"failed": f"with {case_label(case)} {reason}", "wrong": True, "case": number}
    tops = {name: min(size, max(4 * cut[name], CUTS[0])) for name, size in sizes.items()}
    search = Search(code.task, backend, dimensions, trials.why, trials.fits, full | cut, tops)
    search.run()
    for name, size in sizes.items():
        taken = name in search.rules and search.rules[name].takes(size)
        if dimensions[name].given is not None or size == cut[name] or taken:
            continue
        if trials.fits(alone := full | cut | {name: size}) and (reason := trials.why(alone, Values.DRAWN)):
            return {"failed": f"it does not take {name}={size}: {reason}", "wrong": True, "case": 0}
    smaller = {name: min(top, max(cut[name], CUTS[0])) for name, top in tops.items()}
    while smaller != cut and not trials.fits(full | smaller):
        widest = max((name for name in smaller if smaller[name] > cut[name]), key=lambda name: smaller[name])
        smaller[widest] = max(smaller[widest] // 2, cut[widest])
    return {
        "small": [case for _, case in sorted(variants.values(), key=lambda variant: variant[0])],
        "long": _long(trials, search, message["last"], full, cut, sizes),
        "hidden": search.tables(sizes),
        "hidden_small": search.tables(smaller),
        "narrowed": search.narrowed,
        "excluded": search.excluded,
        "modelled": all(map(trials.modelled, visible)),
    }


def _long(trials: Trials, search: Search, last: str, full: Case, cut: Sizes, sizes: Sizes) -> Sizes:
    """Sizes of which the last is long; none if the function takes none, or if the user's own last size is no longer."""
    if sizes.get(last, 0) <= cut.get(last, 0):
        return {}
    for length, short in LONG:
        wanted = {}
        for name, size in sizes.items():
            rule = search.rules.get(name)
            fitting = [one for one in range(1, size + 1) if rule.takes(one)] if rule else [cut[name]]
            most = length if name == last else short
            wanted[name] = max((one for one in fitting if one <= most), default=fitting[0] if fitting else cut[name])
        case = full | wanted
        if wanted[last] > cut[last] and trials.fits(case) and not trials.why(case, Values.DRAWN):
            return wanted
    return {}


def shortened(why: str) -> str:
    """The first part of a reason on one line, with the names of files instead of their paths."""
    text = re.sub(r'"?[\w.\-/]*/([\w.-]+\.py)"?', r"\1", " ".join(re.split(r";|: they were never", why)[0].split()))
    return text if len(text) <= REASON_LIMIT else text[: REASON_LIMIT - 1] + "…"


if __name__ == "__main__":
    serve(servers, sys.argv[1:], TrialReferee, "trials")
