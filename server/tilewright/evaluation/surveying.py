"""The referee's survey of variants of one candidate: what each launches, what that compiles to, what the model says.

Some workers of the `cpu` backend take one variant after another, each imported after the one before is forgotten: no
verdict rests on what is found here. A variant that kills its worker costs that worker alone. Inputs are those of a
measurement, of any size: they are drawn once into files, which the workers map.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any

import torch

from tilewright.evaluation import estimation
from tilewright.evaluation.pool import WorkerFailure, WorkerHandle
from tilewright.evaluation.results import ORIGINAL, Surveyed
from tilewright.evaluation.snapshot import Snapshot
from tilewright.evaluation.taskcode import Inputs, TaskCode
from tilewright.evaluation.tensors import Argument, TensorSpec, plain_argument, to_buffer
from tilewright.gpu.specs import DeviceSpec
from tilewright.roofline.model import CallProfile, estimate_call
from tilewright.task import Case, Frontend

VARIANT_S = 60.0
"""For one variant on one case: the sampled blocks of its call, and its compile."""


def tensors_of(inputs: Inputs) -> list[dict[str, Any]]:
    """Dtype and shape of each tensor among the inputs, as `results.Shaped` has them."""
    specs = [TensorSpec.of(one) for one in inputs.values() if isinstance(one, torch.Tensor)]
    return [spec.model_dump(include={"dtype", "shape"}) for spec in specs]


class _Drawn:
    """The arguments of a case: its tensors in files of `folder`, the others as they are."""

    def __init__(self, code: TaskCode, case: Case, folder: Path) -> None:
        inputs = code.cached_inputs(case, seed=0)
        self._limit_s = code.task.file.timeout_s
        self._arguments: list[Argument | tuple[str, TensorSpec, Path]] = []
        for name, value in code.arguments(case, inputs).items():
            if not isinstance(value, torch.Tensor):
                self._arguments.append(plain_argument(name, value))
                continue
            handle, path = tempfile.mkstemp(dir=folder)
            with os.fdopen(handle, "wb") as file:
                if name in inputs:
                    file.write(to_buffer(value))
                else:  # it is only written to
                    file.truncate(TensorSpec.of(value).span_bytes)
            self._arguments.append((name, TensorSpec.of(value), Path(path)))

    def give(self, worker: WorkerHandle) -> None:
        """Make them the inputs of a worker's next call."""
        arguments = [
            one if isinstance(one, Argument) else Argument(name=one[0], tensor=one[1], file=worker.give(one[2]))
            for one in self._arguments
        ]
        worker.request("inputs", self._limit_s, sets=[[one.model_dump() for one in arguments]])


@dataclass(frozen=True)
class Variant:
    """One of the variants of a survey, and what it is written in."""

    snapshot: Snapshot
    frontend: Frontend


class _Hand:
    """A worker, taken where it is needed, and anew once it has ended. `turn` is for all threads."""

    def __init__(self, take: Callable[[], WorkerHandle], turn: Lock) -> None:
        self._take, self._turn = take, turn
        self._taken: WorkerHandle | None = None

    def worker(self) -> WorkerHandle:
        """Raises `WorkerFailure` where there is none."""
        if self._taken is None or self._taken.ended:
            self.close()
            with self._turn:
                self._taken = self._take()
        return self._taken

    def close(self) -> None:
        if self._taken is not None:
            with self._turn:
                self._taken.close()
            self._taken = None


def survey(
    code: TaskCode,
    variants: Sequence[Variant],
    cases: Sequence[Case],
    device: DeviceSpec,
    workers: int,
    take: Callable[[], WorkerHandle],
    tell: Callable[[str], None],
) -> list[Surveyed]:
    """Model each variant on each case, with so many workers at once; `take` gives a fresh one, for one caller at a
    time. A variant that failed on a case is not tried on the next."""
    turn = Lock()
    hands: SimpleQueue[_Hand] = SimpleQueue()
    folder = variants[ORIGINAL].snapshot.root.parents[1]  # the referee's own: what lies there is given by a link
    with contextlib.ExitStack() as ending:
        inputs = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="inputs-", dir=folder)))
        drawn = [_Drawn(code, case, inputs) for case in cases]
        for _ in range(workers):
            hands.put(ending.enter_context(contextlib.closing(_Hand(take, turn))))

        def look(variant: Variant) -> Surveyed:
            hand = hands.get()
            try:
                return _modelled(code, cases, device, list(_profiles(code, variant, drawn, hand.worker())))
            except WorkerFailure as failure:
                return Surveyed(status=failure.status, message=str(failure))
            finally:
                hands.put(hand)

        with ThreadPoolExecutor(workers) as threads:
            running = [threads.submit(look, variant) for variant in variants]
            for count, _ in enumerate(as_completed(running), 1):
                tell(f"compiled and modelled {count} of {len(variants)} configs")
        return [one.result() for one in running]


def _profiles(code: TaskCode, variant: Variant, drawn: Sequence[_Drawn], worker: WorkerHandle) -> Iterator[CallProfile]:
    """What a variant does in each case."""
    worker.load(code.task.written_in(variant.frontend), variant.snapshot)
    for one in drawn:
        one.give(worker)
        reply, _ = worker.request("profile", VARIANT_S, seed=0)
        with estimation.described():
            yield CallProfile.model_validate(reply["profile"])


def _modelled(code: TaskCode, cases: Sequence[Case], device: DeviceSpec, profiles: list[CallProfile]) -> Surveyed:
    """What the model says of a variant's calls."""
    with estimation.described():
        estimates = [estimate_call(profile, device) for profile in profiles]
        short = [
            estimation.shortfall(profile, estimate.ms, code.work(case), device)
            for profile, estimate, case in zip(profiles, estimates, cases, strict=True)
        ]
    return Surveyed(
        profiles=profiles,
        ms=[estimate.ms for estimate in estimates],
        limits=[estimate.limit for estimate in estimates],
        short=next(filter(None, short), ""),
    )
