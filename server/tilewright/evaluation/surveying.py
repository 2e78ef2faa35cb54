"""The referee's survey of many variants of one candidate: what each compiles to and launches, and what the model says.

A few workers of the `cpu` backend take turns, each variant imported after the one before is forgotten: what is found
here chooses what to measure, and no verdict rests on it. A variant that kills its worker costs that worker alone.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import torch

from tilewright.evaluation import estimation
from tilewright.evaluation.pool import WorkerFailure, WorkerHandle
from tilewright.evaluation.results import Surveyed
from tilewright.evaluation.snapshot import Snapshot
from tilewright.evaluation.taskcode import Inputs, TaskCode
from tilewright.gpu.specs import DeviceSpec
from tilewright.roofline.model import CallProfile, estimate_call
from tilewright.task import Case, Frontend, Work

VARIANT_S = 45.0
"""For one variant on one case, its compile included."""


def described(inputs: Inputs) -> str:
    """The arguments of a call as one line, by name: dtype and shape of tensors, values of the rest."""
    parts = [
        f"{name}={str(one.dtype).removeprefix('torch.')}{list(one.shape)}"
        if isinstance(one, torch.Tensor)
        else f"{name}={one!r}"
        for name, one in sorted(inputs.items())
    ]
    return ", ".join(parts)


def survey(
    code: TaskCode,
    snapshots: list[Snapshot],
    frontends: list[Frontend],
    cases: list[Case],
    device: DeviceSpec,
    workers: int,
    take: Callable[[], WorkerHandle],
    tell: Callable[[str], None],
) -> list[Surveyed]:
    """Look at each variant on each case, with `workers` workers at once; `take` gives a fresh one, for one caller at a
    time. A variant that failed on a case is not tried on the next."""
    found: list[list[CallProfile]] = [[] for _ in snapshots]
    failed: dict[int, WorkerFailure] = {}
    turn, done = Lock(), [0]
    tasks = [code.task.written_in(frontend) for frontend in frontends] or [code.task] * len(snapshots)
    for case in cases:  # so that no two workers draw them
        code.cached_inputs(case, seed=0)

    def run(first: int) -> None:
        worker: WorkerHandle | None = None
        try:
            for case in cases:
                ready = False
                for number in range(first, len(snapshots), workers):
                    if number in failed:
                        continue
                    try:
                        if worker is None or worker.ended:
                            ready = False
                            with turn:
                                worker = take()
                        worker.load(tasks[number], snapshots[number])
                        if not ready:
                            estimation.send_inputs(worker, code, case)
                            ready = True
                        found[number].append(estimation.sampled(worker, VARIANT_S, seed=0))
                    except WorkerFailure as failure:
                        failed[number] = failure
                    with turn:
                        done[0] += 1
                        tell(f"compiled and modelled {done[0]} of {len(snapshots) * len(cases)}, configs times cases")
        finally:
            if worker is not None:
                with turn:
                    worker.close()

    with ThreadPoolExecutor(workers) as threads:
        for running in [threads.submit(run, first) for first in range(min(workers, len(snapshots)))]:
            running.result()
    works = [code.work(case) for case in cases]
    return [_judged(profiles, works, failed.get(number), device) for number, profiles in enumerate(found)]


def _judged(
    profiles: list[CallProfile], works: list[Work], failure: WorkerFailure | None, device: DeviceSpec
) -> Surveyed:
    if failure is not None:
        return Surveyed(status=failure.status, message=str(failure))
    estimates = [estimate_call(profile, device) for profile in profiles]
    short = (
        estimation.shortfall(profile, estimate.ms, work, device)
        for profile, estimate, work in zip(profiles, estimates, works, strict=True)
    )
    return Surveyed(
        profiles=profiles,
        ms=[estimate.ms for estimate in estimates],
        limits=[estimate.limit for estimate in estimates],
        short=next(filter(None, short), ""),
    )
