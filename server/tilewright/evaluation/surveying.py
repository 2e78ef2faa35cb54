"""The referee's survey of many variants of one candidate: what each compiles to and launches, and what the model says.

Some workers of the `cpu` backend take one variant after another, each imported after the one before is forgotten: what
is found here chooses what to measure, and no verdict rests on it. A variant that kills its worker costs that worker
alone. Inputs are those of a measurement, of any size: they are drawn once into files, which the workers map.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any

import torch

from tilewright.compiler.resources import Resources, most_product_bytes
from tilewright.evaluation import estimation
from tilewright.evaluation.caches import keep_compiled
from tilewright.evaluation.pool import WorkerFailure, WorkerHandle
from tilewright.evaluation.results import ORIGINAL, UNREAD, Status, Surveyed, geometric_mean
from tilewright.evaluation.snapshot import Snapshot
from tilewright.evaluation.taskcode import Inputs, TaskCode
from tilewright.evaluation.tensors import Argument, TensorSpec, plain_argument, to_buffer
from tilewright.gpu.specs import DeviceSpec
from tilewright.roofline.model import CallSample, estimate_call, least_ms
from tilewright.task import Case, Frontend

VARIANT_S = 30.0
"""For one variant on one case, and as long again for its compile."""
SAMPLE_S = 15.0
"""For the sampled blocks of its call."""
BATCH = 16
"""Variants whose machine code is waited for before it is read."""
MOST = 4 * BATCH
"""Variants whose machine code is read at once, at most."""
WORKERS_EACH = 4
"""Workers that compile for each that reads what they compile."""
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


def tensors_of(inputs: Inputs) -> list[dict[str, Any]]:
    """Dtype and shape of each tensor among the inputs, as `results.Shaped` has them."""
    specs = [TensorSpec.of(one) for one in inputs.values() if isinstance(one, torch.Tensor)]
    return [spec.model_dump(include={"dtype", "shape"}) for spec in specs]


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


@dataclass(frozen=True)
class Variant:
    """One of the variants of a survey. `like`: the number of the first that differs from it in no more than hints to
    the compiler, or its own; `frontend`: what it is written in."""

    snapshot: Snapshot
    like: int
    frontend: Frontend


class _Bar:
    """What a variant has to promise to be compiled: a modelled latency of at most `hopeless` times the best so far."""

    def __init__(self, hopeless: float, device: DeviceSpec) -> None:
        self._hopeless, self._device = hopeless, device
        self._best = math.inf

    def lower(self, seen: Surveyed) -> None:
        """Take a variant into account that does all of the work."""
        if seen.ms and min(seen.ms) > 0 and not seen.short:
            self._best = min(self._best, geometric_mean(seen.ms))

    def slow(self, samples: Sequence[CallSample]) -> str:
        """Why a variant that does this in its cases is not worth a compile, whatever its hints; empty where it may
        be."""
        least = [least_ms(sample, self._device) for sample in samples]
        times = geometric_mean(least) / self._best if min(least) > 0 else 0.0
        found = f"modelled at {times:.1f} times the best at least, by what it moves and computes: not compiled"
        return found if times > self._hopeless else ""

    def spilling(self, samples: Sequence[CallSample]) -> str:
        """The same by its hints: a product whose result its threads cannot hold is spilled in every step."""
        for launch in (launch for sample in samples for launch in sample.launches):
            threads = 32 * (launch.warps or 0) * launch.ctas
            if threads and launch.product_bytes > most_product_bytes(self._device.arch, threads):
                words = launch.product_bytes // (4 * threads)
                found = f"a matmul's result alone takes {words} registers a thread, and spills: not compiled"
                return found if self._hopeless < math.inf else ""
        return ""


@dataclass(frozen=True)
class _Made:
    """A variant's calls, and what the kernels that they launch compile to, one after the other."""

    samples: list[CallSample]
    cubins: list[bytes]


class _Survey:
    """What a survey has found so far."""

    def __init__(
        self,
        code: TaskCode,
        variants: Sequence[Variant],
        cases: Sequence[Case],
        device: DeviceSpec,
        hopeless: float,
        tell: Callable[[str], None],
    ) -> None:
        self._code, self._variants, self._device, self._tell = code, variants, device, tell
        self._turn, self._done = Lock(), 0
        self._bar = _Bar(hopeless, device)
        self._works = [code.work(case) for case in cases]
        self._sampled: dict[int, Future[list[CallSample]]] = {one.like: Future() for one in variants}
        self.drawn: list[Future[_Drawn]] = [Future() for _ in cases]
        self.made: SimpleQueue[tuple[int, _Made] | None] = SimpleQueue()
        self.found = [Surveyed() for _ in variants]
        numbers = [*random.Random(0).sample(range(1, len(variants)), len(variants) - 1), ORIGINAL]
        self._firsts = [number for number in numbers if variants[number].like == number]
        self._rest = [number for number in numbers if variants[number].like != number]
        self._compiled_s: dict[int, float] = {}

    def next(self) -> int | None:
        """Whom to look at next: the original; of those that are alike the first, in an order that soon shows a good
        one; and the others, from those on that take long to compile, so that none of them keeps the end waiting."""
        with self._turn:
            if self._firsts:
                return self._firsts.pop()
            if not self._rest:
                return None
            taken = max(self._rest, key=lambda number: self._compiled_s.get(self._variants[number].like, 0.0))
            self._rest.remove(taken)
            return taken

    def look(self, number: int, worker: Callable[[], WorkerHandle]) -> None:
        """Sample one variant on all cases and compile it; `worker` gives one where it is needed."""
        variant = self._variants[number]
        try:
            if variant.like == number:
                found = self._first(number, worker())
            else:
                found = self._alike(variant, self._sampled[variant.like].result(), worker)
        except WorkerFailure as failure:
            found = Surveyed(status=failure.status, message=str(failure))
        finally:
            if variant.like == number and not self._sampled[number].done():
                self._sampled[number].set_result([])
        if isinstance(found, Surveyed):
            self._settle(number, found)
        else:
            self.made.put((number, found))

    def _settle(self, number: int, found: Surveyed) -> None:
        self.found[number] = found
        with self._turn:
            self._bar.lower(found)
            self._done += 1
            self.say()

    def say(self) -> None:
        """How far the survey is."""
        self._tell(f"compiled and modelled {self._done} of {len(self.found)} configs")

    def _first(self, number: int, worker: WorkerHandle) -> Surveyed | _Made:
        samples = list(self._samples(self._variants[number], worker))
        self._sampled[number].set_result(samples)
        if left := "" if number == ORIGINAL else self._bar.slow(samples) or self._bar.spilling(samples):
            return Surveyed(left=left)
        started = time.monotonic()
        made = _made(samples, worker, self._variants[number].snapshot.cache)
        self._compiled_s[number] = time.monotonic() - started
        return made

    def _alike(
        self, variant: Variant, first: Sequence[CallSample], worker: Callable[[], WorkerHandle]
    ) -> Surveyed | _Made:
        if first and (left := self._bar.slow(first)):
            return Surveyed(left=left)
        taken = worker()
        samples = list(self._samples(variant, taken, first))
        left = self._bar.spilling(samples)
        return Surveyed(left=left) if left else _made(samples, taken, variant.snapshot.cache)

    def _samples(
        self, variant: Variant, worker: WorkerHandle, first: Sequence[CallSample] = ()
    ) -> Iterator[CallSample]:
        """What a variant does in each case. Where that is what the `first` of those like it does, no block is run."""
        worker.load(self._code.task.written_in(variant.frontend), variant.snapshot)
        for place, inputs in enumerate(self.drawn):
            inputs.result().give(worker)
            if first:
                seen, known = self._sample(worker, place, 0.0), first[place].launches
                if [(one.kernel, one.blocks) for one in seen.launches] == [(one.kernel, one.blocks) for one in known]:
                    hinted = [
                        one.model_copy(update={"warps": own.warps, "ctas": own.ctas})
                        for one, own in zip(known, seen.launches, strict=True)
                    ]
                    yield first[place].model_copy(update={"launches": hinted})
                    continue
            yield self._sample(worker, place, SAMPLE_S)

    def _sample(self, worker: WorkerHandle, place: int, limit_s: float) -> CallSample:
        reply, _ = worker.request("sample", VARIANT_S, place=place, seed=0, limit_s=limit_s)
        with estimation.described():
            return CallSample.model_validate(reply["sample"])

    def read(self, hand: _Hand) -> None:
        """Model what is made, until nothing more comes (None), by a worker that reads machine code. Reading many takes
        as long as reading one: after the first, it waits for as many as were read before."""
        going, count = True, 0
        while going:
            batch, going = self._gathered(min(max(count, 1), BATCH))
            if batch:
                self._judge(batch, hand)
                count += len(batch)

    def _gathered(self, least: int) -> tuple[list[tuple[int, _Made]], bool]:
        """At least so many of what is made, with whatever more is there already; and whether more may come."""
        batch: list[tuple[int, _Made]] = []
        while len(batch) < MOST:
            try:
                taken = self.made.get(block=len(batch) < least)
            except Empty:
                break
            if taken is None:
                return batch, False
            batch.append(taken)
        return batch, True

    def _judge(self, batch: Sequence[tuple[int, _Made]], hand: _Hand) -> None:
        """Settle what is made. Where that fails, one by one: what ends a reader costs itself alone."""
        cubins = [*dict.fromkeys(cubin for _, made in batch for cubin in made.cubins)]
        try:
            reply, _ = hand.worker().request("read", VARIANT_S + len(cubins), cubins)
            with estimation.described():
                known = dict(zip(cubins, reply["found"], strict=True))
                found = [(number, self._modelled(made, known)) for number, made in batch]
        except WorkerFailure as failure:
            if len(batch) > 1:
                for one in batch:
                    self._judge([one], hand)
                return
            found = [(batch[0][0], Surveyed(status=Status.CRASHED, message=f"{UNREAD}: {failure}"))]
        for number, seen in found:
            self._settle(number, seen)

    def _modelled(self, made: _Made, known: Mapping[bytes, Any]) -> Surveyed:
        """What the model says of a variant's calls; `known` has what was read of each cubin."""
        read = [known[cubin] for cubin in made.cubins]
        if error := next((one["error"] for one in read if "error" in one), ""):
            return Surveyed(status=Status.CRASHED, message=f"{UNREAD}: {error}")
        rest = (Resources.model_validate(one["resources"]) for one in read)
        profiles = [sample.occupying([*islice(rest, len(sample.launches))]) for sample in made.samples]
        estimates = [estimate_call(profile, self._device) for profile in profiles]
        short = (
            estimation.shortfall(profile, estimate.ms, work, self._device)
            for profile, estimate, work in zip(profiles, estimates, self._works, strict=True)
        )
        return Surveyed(
            profiles=profiles,
            ms=[estimate.ms for estimate in estimates],
            limits=[estimate.limit for estimate in estimates],
            short=next(filter(None, short), ""),
        )


def _made(samples: list[CallSample], worker: WorkerHandle, cache: Path) -> _Made:
    """What the kernels of a variant that `worker` has sampled compile to, also kept in the variant's `cache`."""
    reply, found = worker.request("cubins", VARIANT_S * len(samples))
    cubins = [bytes(cubin) for cubin in found]
    if len(cubins) != sum(len(sample.launches) for sample in samples):
        raise WorkerFailure(Status.CRASHED, f"the process compiled {len(cubins)} kernels, not those that it launches")
    with estimation.described():
        keep_compiled(cache, [str(key) for key in reply["keys"]], cubins)
    return _Made(samples, cubins)


class _Hand:
    """The worker of one thread: taken where it is needed, and anew once it has ended. `turn` is for all threads."""

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
    hopeless: float,
    workers: int,
    take: Callable[[], WorkerHandle],
    tell: Callable[[str], None],
) -> list[Surveyed]:
    """Look at each variant on each case, with about `workers` workers at once; `take` gives a fresh one, for one caller
    at a time. A variant that failed on a case is not tried on the next. One that is sure to be modelled at more than
    `hopeless` times the best of them, or to spill products' results, is not compiled, but for the first of all."""
    seen = _Survey(code, variants, cases, device, hopeless, tell)
    turn = Lock()

    def run() -> None:
        with contextlib.closing(_Hand(take, turn)) as hand:
            while (number := seen.next()) is not None:
                seen.look(number, hand.worker)

    def read() -> None:
        with contextlib.closing(_Hand(take, turn)) as hand:
            seen.read(hand)

    seen.say()
    readers = max(min(workers, len(variants) // BATCH) // WORKERS_EACH, 1)
    workers = len(variants) if len(variants) <= CROWDED * workers else workers
    folder = variants[ORIGINAL].snapshot.root.parents[1]  # the referee's own: what lies there is given by a link
    with (
        tempfile.TemporaryDirectory(prefix="inputs-", dir=folder) as name,
        ThreadPoolExecutor(workers + readers) as threads,
    ):
        running = [threads.submit(run) for _ in range(workers)]
        reading = [threads.submit(read) for _ in range(readers)]
        try:
            for case, inputs in zip(cases, seen.drawn, strict=True):  # while the workers import the first variants
                try:
                    inputs.set_result(_Drawn(code, case, Path(name)))
                except Exception as error:  # whoever waits for it raises it
                    inputs.set_exception(error)
            for one in running:
                one.result()
        finally:
            for _ in reading:
                seen.made.put(None)
        for one in reading:
            one.result()
    return seen.found
