"""The configs of a candidate's tuners: each is tried on one case. The config that a tuner takes on the case that is
benchmarked is checked on all hidden sizes, none of which costs a search."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from dataclasses import replace

from tilewright.cases import volume
from tilewright.evaluation.correctness import Run
from tilewright.evaluation.crew import DISTURBED, Check, Runs, on_each
from tilewright.evaluation.pool import WorkerFailure, WorkerHandle
from tilewright.evaluation.results import CaseCheck, CorrectnessResult, Status
from tilewright.evaluation.snapshot import Snapshot
from tilewright.evaluation.unseen import Tuners, unshown
from tilewright.evaluation.worker import SWITCH
from tilewright.frontends.protocol import Choice
from tilewright.task import Backend, Task, Values

LIMIT_S = 20.0
"""For all configs together. The first one is tried whatever it takes."""
KNOWN = re.compile(r"\b(exhaustive_search|autotune)\b")
"""What frontends answer."""
UNTUNED = f"hidden sizes in the original config: its tuner is not known, and {SWITCH}=1 was set for them"


def named_in(snapshot: Snapshot, task: Task) -> tuple[bool, bool]:
    """Whether the text of a candidate names a tuner that frontends answer, and whether it names `SWITCH`."""
    folder = snapshot.root / snapshot.task
    text = "\n".join((folder / name).read_text(errors="replace") for name in task.file.editable)
    return bool(KNOWN.search(text)), SWITCH in text


def checked(
    by: Check, runs: Sequence[Run], crew: Sequence[WorkerHandle], limit_s: float = math.inf
) -> tuple[CorrectnessResult, CorrectnessResult | None, list[str]]:
    """Make the visible runs, and then the hidden ones, of which either may begin within `limit_s` seconds. Where the
    candidate may tune, the hidden ones are in the config that its tuners take on the case that is benchmarked; and what
    is to be said of that. Raises `WorkerFailure`."""
    visible, hidden = [run for run in runs if not run.hidden], [run for run in runs if run.hidden]
    may_tune, alone = by.tunes or by.switched, crew[:1]  # a search has the GPU for itself
    if may_tune:
        cases = by.code.task.correctness_cases(by.backend)  # those of a benchmark are too large where it is modelled
        benchmarked = next((case for case in by.code.task.benchmark_cases(by.backend) if case in cases), cases[0])
        if all(run.case != benchmarked for run in visible):
            visible.append(Run(benchmarked, False, runs[0].seed))
        visible.sort(key=lambda run: run.case != benchmarked)
    first = Runs(by, visible, time.monotonic() + limit_s, after=len(hidden)).on(alone if may_tune else crew)
    if not first.passed or not hidden:
        return first, None, []
    taken = unshown(alone, by.code).tuners.first if may_tune else {}
    switch = by.switched and not taken
    for worker in crew if switch or (taken and by.backend is Backend.CUDA) else ():  # without a clock none searches
        worker.request("choose", by.code.task.file.timeout_s, tuner=Choice(0, known=taken), switch=switch)
    second = Runs(by, hidden, time.monotonic() + limit_s, before=len(visible)).on(crew)
    return first, second, [UNTUNED] if switch else []


def fault_of(by: Check, runs: Sequence[Run], tuners: Tuners) -> CaseCheck | None:
    """How the candidate, which is right on `runs`, is wrong with another config of its tuners, on the smallest visible
    case. None if it is not. `tuners` gets what was tried. A config that does not run counts for nothing: a tuner does
    not take it."""
    run, first = _smallest(runs), int(by.backend is Backend.CPU)  # no GPU, no clock: config 0 was checked
    run = replace(run, twice=False, last=False)
    tuners.tried |= {*range(first)}
    until = time.monotonic() + LIMIT_S
    count = max(tuners.configs.values(), default=0)
    for number in range(first, count, by.workers):
        if number > first and time.monotonic() > until:
            break
        by.tell(f"trying config {number + 1} of {count}")
        numbers = [*range(number, min(number + by.workers, count))]
        for one, (check, config) in zip(numbers, _tried(by, run, numbers), strict=True):
            if check.status is Status.PASSED or check.status.is_incorrect:
                tuners.tried.add(one)
            if check.status.is_incorrect:
                return check.model_copy(update={"message": f"with the config {config}: {check.message}"})
    return None


def _tried(by: Check, run: Run, numbers: Sequence[int]) -> list[tuple[CaseCheck, str]]:
    """How a run ends with each of these configs, and the config in words. What may have failed for the others beside
    it, for want of memory say, runs once more alone."""
    try:
        with by.start(choices=[*map(Choice, numbers)]) as workers:
            found = [
                (check, unshown([worker], by.code).tuners.text if check.status.is_incorrect else "")
                for worker, check in zip(workers, on_each(by, run, workers), strict=True)
            ]
    except WorkerFailure as failure:
        check = CaseCheck(case=run.case, hidden=run.hidden, status=failure.status, message=str(failure))
        found = [(check, f"number {number + 1}") for number in numbers]
    if len(numbers) > 1:
        for place, (check, _) in enumerate(found):
            if check.status in DISTURBED - {Status.COMPILE_ERROR}:
                found[place] = _tried(by, run, numbers[place : place + 1])[0]
    return found


def failed(result: CorrectnessResult, check: CaseCheck) -> CorrectnessResult:
    """The result with a run that failed."""
    cases = [*(one for one in result.cases if one.status is Status.PASSED), check]
    return result.model_copy(
        update={"status": check.status, "message": f"{check.label}: {check.message}", "cases": cases}
    )


def _smallest(runs: Sequence[Run]) -> Run:
    drawn = [run for run in runs if not run.hidden and run.values is Values.DRAWN]
    return min(drawn or runs, key=lambda run: volume(run.case))
