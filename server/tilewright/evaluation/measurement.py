"""The referee's benchmark: candidate and incumbent in their own processes, interleaved in random order.

Each timed block runs many calls over a rotation of input sets larger than twice the L2 cache, so that inputs come
from DRAM. The device events of the worker are checked against this process's own clock.
"""

from __future__ import annotations

import contextlib
import math
import random
import statistics as plain_statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from tilewright.evaluation import statistics
from tilewright.evaluation.correctness import Boxes, judge, share_inputs
from tilewright.evaluation.pool import WorkerFailure, WorkerHandle
from tilewright.evaluation.results import BenchmarkResult, CaseTiming, Environment, Status, geometric_mean
from tilewright.evaluation.seeds import Seeds
from tilewright.evaluation.taskcode import Inputs, TaskCode, tensor_bytes
from tilewright.evaluation.tensors import SharedTensor
from tilewright.gpu.specs import spec_by_name
from tilewright.gpu.telemetry import Recorder
from tilewright.roofline.bounds import Ceilings, floor_ms, roofline_share
from tilewright.task import Backend, Case, case_label

BLOCK_MS = 4.0
"""Device time that one timed block aims at."""
MAX_CALLS = 512
MAX_SETS = 64
MEMORY_SHARE = 0.25
"""Share of the free device memory that input sets may take."""
CLOCK_SLACK_MS = 0.05
"""By how much a block's device time may seem to exceed the wall time around it."""


@dataclass
class Phases:
    """Where a run's seconds go, by name."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started


def measured_ceilings(tell: Callable[[str], None]) -> Ceilings:
    """What this GPU reaches right now: a copy of 2 GiB, and large matrix products by dtype (cuBLAS), medians."""
    tell("measuring the device's ceilings")
    source = torch.empty(2**29, dtype=torch.float32, device="cuda").normal_()
    target = torch.empty_like(source)
    copied = 2 * source.numel() * 4 / (_median_ms(partial(target.copy_, source)) / 1e3)
    del source, target
    flops = {}
    for dtype, size in ((torch.bfloat16, 8192), (torch.float16, 8192), (torch.float32, 4096)):
        left, right = (torch.randn(size, size, dtype=dtype, device="cuda") for _ in range(2))
        out = torch.empty_like(left)
        elapsed = _median_ms(partial(torch.matmul, left, right, out=out))
        flops[str(dtype).removeprefix("torch.")] = 2 * size**3 / (elapsed / 1e3)
    torch.cuda.empty_cache()
    return Ceilings(copy_bytes_per_s=copied, flops=flops, measured=True)


def _median_ms(call: Callable[[], Any], repeats: int = 15) -> float:
    for _ in range(3):
        call()
    times: list[float] = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return plain_statistics.median(times)


class Bench:
    """One benchmark run on the device: `arms` are the candidate and, unless this is the baseline, the incumbent."""

    def __init__(
        self, code: TaskCode, arms: list[WorkerHandle], environment: Environment, own: set[int], clock: Phases
    ) -> None:
        self._code = code
        self._task = code.task
        self._arms = arms
        self._environment = environment
        self._clock = clock
        self._recorder = Recorder(environment.device_uuid, own)
        self._order = random.SystemRandom()

    def run(self, seeds: Seeds, tell: Callable[[str], None]) -> BenchmarkResult:
        """Measure every case, on inputs drawn from `seeds`."""
        cases = self._task.benchmark_cases(Backend.CUDA)
        timings: list[CaseTiming] = []
        intervals: list[statistics.Interval] = []
        for number, case in enumerate(cases):
            tell(f"timing case {number + 1} of {len(cases)}: {case_label(case)}")
            timing, interval = self._case(case, seeds)
            timings.append(timing)
            if interval is not None:
                intervals.append(interval)
        return combine(timings, intervals, self._recorder)

    def _case(self, case: Case, seeds: Seeds) -> tuple[CaseTiming, statistics.Interval | None]:
        timeout = self._task.file.timeout_s
        with self._clock("inputs"):
            sets = _InputSets(self._code, case, seeds)
            for arm in self._arms:
                arm.request("inputs", timeout, sets=sets.described)
        with self._clock("compile and warm up"):
            estimates = [_milliseconds(arm.request("estimate", timeout)[0]) for arm in self._arms]
            sets.refresh()
        with self._clock("capture"):
            calls = _calls(min(estimates), max(estimates), len(sets), sets.in_place)
            mode = self._prepare(calls)
        with self._clock("measure"):
            times = self._blocks(sets, calls)
        with self._clock("verify"):
            self._verify(case, sets, min(calls, len(sets)), seeds.next())
        for arm in self._arms:  # let go of shared memory before it is freed here
            arm.request("inputs", timeout, sets=[])
        latency = plain_statistics.median(times[0])
        work = self._code.work(case)
        percent, bound = roofline_share(latency, work, self._environment.ceilings)
        device = spec_by_name(self._environment.device)
        floor = floor_ms(work, device, device.l2_bytes) if device is not None else 0.0
        if latency < floor:
            raise WorkerFailure(
                Status.TAMPERED,
                f"{case_label(case)}: {latency:.6f} ms is faster than the data sheet's peak allows "
                f"({floor:.6f} ms): the timed calls cannot have done the work",
            )
        common: dict[str, Any] = {
            "case": case,
            "latency_ms": latency,
            "roofline_percent": percent,
            "bound": bound,
            "note": "; ".join(
                filter(
                    None,
                    (
                        mode,
                        "" if sets.cold else "inputs too small to be kept out of the L2 cache",
                        "" if device else f"no data sheet of {self._environment.device}: latencies have no floor",
                        "" if bound else "no measured ceiling applies",
                    ),
                )
            ),
        }
        if len(self._arms) == 1:
            return CaseTiming(**common), None
        interval = statistics.interval(_log_ratios(times))
        speedup, low, high = interval.ratio()
        timing = CaseTiming(
            **common,
            incumbent_ms=plain_statistics.median(times[1]),
            speedup=speedup,
            speedup_low=low,
            speedup_high=high,
            pairs=interval.samples,
        )
        return timing, interval

    def _prepare(self, calls: int) -> str:
        timeout = self._task.file.timeout_s
        refusals = [str(arm.request("prepare", timeout, calls=calls, graph=True)[0]["refused"]) for arm in self._arms]
        if not any(refusals):
            return f"{calls} calls a block, CUDA graph"
        for arm in self._arms:
            arm.request("prepare", timeout, calls=calls, graph=False)
        return f"{calls} calls a block, eager ({next(filter(None, refusals)).splitlines()[0][:80]})"

    def _blocks(self, sets: _InputSets, calls: int) -> list[list[float]]:
        """Per arm, the latency of one call in ms in each block; blocks of equal index are paired."""
        times: list[list[float]] = [[] for _ in self._arms]
        self._recorder.sample()
        for look in statistics.LOOKS:
            while len(times[0]) < look:
                order = list(range(len(self._arms)))
                self._order.shuffle(order)
                for index in order:
                    times[index].append(self._block(self._arms[index], sets) / calls)
            self._recorder.sample()
            if len(self._arms) == 1 or statistics.is_decided(statistics.interval(_log_ratios(times))):
                break
        return times

    def _block(self, arm: WorkerHandle, sets: _InputSets) -> float:
        if sets.in_place:
            sets.refresh()
        started = time.perf_counter()
        elapsed = _milliseconds(arm.request("run", self._task.file.timeout_s)[0])
        wall = (time.perf_counter() - started) * 1e3
        if elapsed > wall + CLOCK_SLACK_MS:
            raise WorkerFailure(
                Status.TAMPERED,
                f"a block claims {elapsed:.3f} ms of device time, but only {wall:.3f} ms passed",
                label=arm.label,
            )
        return elapsed

    def _verify(self, case: Case, sets: _InputSets, used: int, seed: int) -> None:
        """After timing, on fresh values in the same buffers: one more block, and one of its outputs compared.

        `used` is how many of the sets a block's calls go over.
        """
        index = self._order.randrange(used)
        inputs = self._code.inputs(case, seed)
        expected = self._code.expected(case, inputs)
        contract = self._code.contract(case, inputs)
        sets.replace(index, inputs)
        candidate = self._arms[0]
        candidate.request("run", self._task.file.timeout_s)
        boxes = Boxes(contract)
        candidate.request("collect", self._task.file.timeout_s, index=index, boxes=boxes.described)
        found = judge(self._task, boxes.tensors(), expected, contract)
        if found.status is not Status.PASSED:
            raise WorkerFailure(found.status, f"{case_label(case)}, checked after timing: {found.message}")


class _InputSets:
    """Several sets of one case's arguments in shared device memory, rotated so that no call finds its inputs cached."""

    def __init__(self, code: TaskCode, case: Case, seeds: Seeds) -> None:
        first = code.inputs(case, seeds.next())
        self.in_place = any(name in first for name in code.task.file.outputs)
        self._outputs = code.task.file.outputs
        size = max(tensor_bytes(first), 1)
        device = torch.cuda.get_device_properties(0)
        wanted = math.ceil(2 * device.L2_cache_size / size) + 1
        affordable = int(torch.cuda.mem_get_info()[0] * MEMORY_SHARE / size)
        count = max(min(wanted if not self.in_place else max(wanted, 8), affordable, MAX_SETS), 1)
        self.cold = count >= wanted
        self._values: list[Inputs] = []
        self._shared: list[dict[str, SharedTensor]] = []
        self.described: list[list[dict[str, Any]]] = []
        for number in range(count):
            values = code.inputs(case, seeds.next()) if number else first
            tensors, arguments = share_inputs(code.arguments(case, values))
            self._shared.append(tensors)
            self.described.append([argument.model_dump() for argument in arguments])
            if self.in_place:
                self._values.append(values)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    def __len__(self) -> int:
        return len(self._shared)

    def refresh(self) -> None:
        """Undo what in-place calls did to the inputs."""
        for values, shared in zip(self._values, self._shared, strict=False):
            for name in self._outputs:
                if name in values:
                    shared[name].fill_from(values[name])
        torch.cuda.synchronize()

    def replace(self, index: int, inputs: Inputs) -> None:
        """Put fresh values into set `index`, and make every set as it was before any in-place call."""
        self.refresh()
        for name, value in inputs.items():
            if isinstance(value, torch.Tensor):
                self._shared[index][name].fill_from(value)
        torch.cuda.synchronize()


def _calls(fastest_ms: float, slowest_ms: float, sets: int, in_place: bool) -> int:
    if in_place:
        return sets
    wanted = math.ceil(BLOCK_MS / max(fastest_ms, 1e-3))
    affordable = max(int(250.0 / max(slowest_ms, 1e-3)), 1)
    return max(min(wanted, affordable, MAX_CALLS), min(sets, affordable), 1)


def _milliseconds(reply: dict[str, Any]) -> float:
    value = reply.get("ms")
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise WorkerFailure(Status.VOID, f"a worker reported {value!r} as a time")
    return float(value)


def _log_ratios(times: list[list[float]]) -> list[float]:
    return [math.log(incumbent / candidate) for candidate, incumbent in zip(times[0], times[1], strict=True)]


def combine(
    timings: list[CaseTiming], intervals: list[statistics.Interval], recorder: Recorder | None, modelled: bool = False
) -> BenchmarkResult:
    """The result over all cases: geometric means, and the combined interval where there is an incumbent."""
    speedup = low = high = None
    if intervals:
        speedup, low, high = statistics.combined(intervals).ratio()
    return BenchmarkResult(
        status=Status.PASSED,
        modelled=modelled,
        latency_ms=geometric_mean([timing.latency_ms for timing in timings]),
        speedup=speedup,
        speedup_low=low,
        speedup_high=high,
        cases=timings,
        telemetry=recorder.result() if recorder else None,
    )
