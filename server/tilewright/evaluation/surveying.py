"""The referee's survey of many variants of one candidate: what each compiles to and launches, and what the model says.

Some workers of the `cpu` backend take one variant after another, each imported after the one before is forgotten: what
is found here chooses what to measure, and no verdict rests on it. A variant that kills its worker costs that worker
alone. Inputs are those of a measurement, of any size: they are drawn once into files, which the workers map.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock

import torch

from tilewright.evaluation import estimation
from tilewright.evaluation.pool import WorkerFailure, WorkerHandle
from tilewright.evaluation.results import Surveyed
from tilewright.evaluation.snapshot import Snapshot
from tilewright.evaluation.taskcode import Inputs, TaskCode
from tilewright.evaluation.tensors import Argument, TensorSpec, plain_argument, to_buffer
from tilewright.gpu.specs import DeviceSpec
from tilewright.roofline.model import CallProfile, estimate_call
from tilewright.task import Case, Frontend, Work

VARIANT_S = 30.0
"""For one variant on one case, its compile included."""
SAMPLE_S = 15.0
"""For the sampled blocks of its call."""
CROWDED = 1.25
"""Workers for each that was asked for, where every variant then has its own: a second turn takes as long as a first."""


def described(inputs: Inputs) -> str:
    """The arguments of a call as one line, by name: dtype and shape of tensors, values of the rest."""
    parts = [
        f"{name}={str(one.dtype).removeprefix('torch.')}{list(one.shape)}"
        if isinstance(one, torch.Tensor)
        else f"{name}={one!r}"
        for name, one in sorted(inputs.items())
    ]
    return ", ".join(parts)


class _Drawn:
    """The arguments of a case: its tensors in files of `folder`, the others as they are."""

    def __init__(self, code: TaskCode, case: Case, folder: Path) -> None:
        inputs = code.cached_inputs(case, seed=0)
        self._limit_s = code.task.file.timeout_s
        self._files: dict[str, tuple[Path, TensorSpec]] = {}
        self._plain = []
        for name, value in code.arguments(case, inputs).items():
            if not isinstance(value, torch.Tensor):
                self._plain.append(plain_argument(name, value))
                continue
            handle, path = tempfile.mkstemp(dir=folder)
            with os.fdopen(handle, "wb") as file:
                if name in inputs:
                    file.write(to_buffer(value))
                else:  # it is only written to
                    file.truncate(TensorSpec.of(value).span_bytes)
            self._files[name] = Path(path), TensorSpec.of(value)

    def give(self, worker: WorkerHandle) -> None:
        """Make them the inputs of a worker's next call."""
        tensors = [
            Argument(name=name, tensor=spec, file=worker.give(path)) for name, (path, spec) in self._files.items()
        ]
        worker.request("inputs", self._limit_s, sets=[[one.model_dump() for one in (*self._plain, *tensors)]])


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
    """Look at each variant on each case, with about `workers` workers at once; `take` gives a fresh one, for one caller
    at a time. A variant that failed on a case is not tried on the next."""
    found: list[list[CallProfile]] = [[] for _ in snapshots]
    failed: dict[int, WorkerFailure] = {}
    turn, done = Lock(), [0]
    tasks = [code.task.written_in(frontend) for frontend in frontends] or [code.task] * len(snapshots)
    waiting = deque(range(len(snapshots)))
    drawn: list[Future[_Drawn]] = [Future() for _ in cases]

    def count(more: int) -> None:
        done[0] += more
        tell(f"compiled and modelled {done[0]} of {len(snapshots) * len(cases)}, configs times cases")

    def look(number: int, worker: WorkerHandle) -> None:
        """Model one variant on all cases."""
        try:
            worker.load(tasks[number], snapshots[number])
            for inputs in drawn:
                inputs.result().give(worker)
                found[number].append(estimation.sampled(worker, VARIANT_S, seed=0, limit_s=SAMPLE_S))
                with turn:
                    count(1)
        except WorkerFailure as failure:
            failed[number] = failure
            with turn:
                count(len(cases) - len(found[number]))

    def run() -> None:
        worker: WorkerHandle | None = None
        try:
            while True:
                with turn:
                    if not waiting:
                        return
                    number = waiting.popleft()
                    if worker is None or worker.ended:
                        try:
                            worker = take()
                        except WorkerFailure as failure:
                            failed[number] = failure
                            count(len(cases))
                            continue
                look(number, worker)
        finally:
            if worker is not None:
                with turn:
                    worker.close()

    count(0)
    workers = len(snapshots) if len(snapshots) <= CROWDED * workers else workers
    folder = snapshots[0].root.parents[1]  # the referee's own, where a file can be given to a worker by a link
    with tempfile.TemporaryDirectory(prefix="inputs-", dir=folder) as name, ThreadPoolExecutor(workers) as threads:
        running = [threads.submit(run) for _ in range(workers)]
        for case, inputs in zip(cases, drawn, strict=True):  # while the workers import the first variants
            try:
                inputs.set_result(_Drawn(code, case, Path(name)))
            except Exception as error:  # whoever waits for it raises it
                inputs.set_exception(error)
        for one in running:
            one.result()
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
