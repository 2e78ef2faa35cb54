"""What is timed in its own process: candidate and incumbent, interleaved in random order.

The referee draws new values for every call of a block in memory of its own, and poisons the boxes for the outputs. Then
its clock starts; it shows the values, reads the L2 cache full of something else and asks for the block; and the clock
stops when the arm has handed over all outputs, of which a random share is compared with the reference. The worker's
device events resolve finer, and count as far as the clock bears them out.
"""

from __future__ import annotations

import contextlib
import gc
import math
import random
import statistics as plain_statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tilewright.evaluation import statistics
from tilewright.evaluation.block import Block
from tilewright.evaluation.correctness import judge_drawn
from tilewright.evaluation.pool import WorkerFailure, WorkerHandle
from tilewright.evaluation.results import CaseTiming, Environment, Level, Status
from tilewright.evaluation.seeds import Seeds
from tilewright.evaluation.statistics import Evidence, Pair
from tilewright.evaluation.taskcode import Inputs, TaskCode
from tilewright.gpu.specs import DeviceSpec, spec_by_name
from tilewright.gpu.telemetry import Recorder, named
from tilewright.roofline.bounds import floor_ms, roofline_share
from tilewright.rules import DEFAULT, Rules
from tilewright.task import Backend, Case, Work, case_label

BLOCK_MS = 10.0
"""Device time that one timed block aims at."""
MAX_CALLS = 512
INPUT_LIMIT = 8 * 2**30
MEMORY_SHARE = 0.6
"""Share of the free device memory that a block's inputs, its outputs in each arm, and their boxes may take together."""
TIME_LIMIT_S = 8.0
"""For the pairs of all cases together; then what there is decides."""
CLOCK_SLACK_MS = 0.05
"""By how much a block's device time may seem to exceed the wall time around it."""
CLOCK_SHARE = 0.02
"""Share of a block by which one arm's device times may fall short of the outer clock, beyond the other arm's."""
CHECKED_SHARE = 0.5
"""Share of the pairs after which one of the candidate's outputs is compared."""
VERIFIED_SHARE = 0.5
"""Of the time that pairs take, beyond which no more outputs are compared until the sweep: a reference may be slow."""
SWEEP_S = 0.6
"""For comparing the outputs of a last block, in random order."""


@dataclass
class Phases:
    """Where a run's seconds go, by name. A part within a part counts as itself alone."""

    seconds: dict[str, float] = field(default_factory=dict)
    _within: float = 0.0

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        started, before, self._within = time.monotonic(), self._within, 0.0
        try:
            yield
        finally:
            took = time.monotonic() - started
            self.seconds[name] = self.seconds.get(name, 0.0) + took - self._within
            self._within = before + took


class Bench:
    """One benchmark run on the device: `arms` are the candidate and, unless this is the baseline, the incumbent."""

    def __init__(
        self,
        code: TaskCode,
        arms: list[WorkerHandle],
        environment: Environment,
        recorder: Recorder,
        clock: Phases,
        rules: Rules = DEFAULT,
    ) -> None:
        """Intervals are by `rules`."""
        self._rules = rules
        self._code = code
        self._task = code.task
        self._arms = arms
        self._environment = environment
        self._clock = clock
        self._recorder = recorder
        self._order = random.SystemRandom()
        self._began, self._verified_before = 0.0, 0.0
        self._in_place = False
        self._device = spec_by_name(environment.device)
        l2 = self._device.l2_bytes if self._device else torch.cuda.get_device_properties(0).L2_cache_size
        self._other = torch.zeros(2 * l2 // 4, dtype=torch.float32, device="cuda")

    def case(self, case: Case, seeds: Seeds, looks: tuple[int, ...], limit_s: float) -> tuple[CaseTiming, Evidence]:
        """Measure one case until a look decides it, or `limit_s` seconds have passed; pairs only with two arms."""
        with self._clock("compile and warm up"):
            block = self._block_of(case, seeds)
        with self._clock("capture"):
            mode = self._prepare(block)
        with self._clock("measure"):
            latencies, evidence = self._pairs(block, looks, limit_s)
        self._ask("inputs", sets=[])  # they let go of shared memory before it is freed here
        latency = plain_statistics.median(latencies)
        work = self._code.work(case)
        percent, bound = roofline_share(latency, work, self._environment.ceilings)
        need_possible(case, latency, work, self._device)
        notes = (
            mode,
            "" if self._device else f"no data sheet of {self._environment.device}: latencies have no floor",
            "" if bound else "no measured ceiling applies",
        )
        pairing: dict[str, Any] = {}
        if evidence.pairs:
            self._need_agreement(case, evidence, block.calls)
            pairing = paired(evidence)
        timing = CaseTiming(
            case=case,
            level=Level.IN_PROCESS,
            latency_ms=latency,
            roofline_percent=percent,
            bound=bound,
            note="; ".join(filter(None, notes)),
            **pairing,
        )
        return timing, evidence

    def _block_of(self, case: Case, seeds: Seeds) -> Block:
        """Warm the arms up, and lay out a block of as many calls as take about `BLOCK_MS`."""
        timeout = self._task.file.timeout_s
        few = Block(self._code, case, seeds, calls=3)
        self._in_place = few.in_place
        self._ask("inputs", sets=few.arguments.described)
        shortest = min(_milliseconds(arm.request("estimate", timeout)[0]) for arm in self._arms)
        self._ask("inputs", sets=[])
        free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        needed = 2 * few.input_bytes + (1 + len(self._arms)) * few.output_bytes
        most = min(INPUT_LIMIT // max(few.input_bytes, 1), int(free * MEMORY_SHARE) // max(needed, 1), MAX_CALLS)
        calls = max(min(math.ceil(BLOCK_MS / max(shortest, 1e-3)), most), 1)
        del few
        torch.cuda.empty_cache()
        block = Block(self._code, case, seeds, calls)
        self._ask("inputs", sets=block.arguments.described)
        self._ask("estimate")  # on these very tensors: what is cached by address is ready
        if block.in_place:
            block.fill()
        return block

    def _ask(self, op: str, **message: Any) -> None:
        """Ask every arm for the same, one after the other: what one tunes itself by is not to be the other's doing."""
        for arm in self._arms:
            arm.request(op, self._task.file.timeout_s, **message)

    def _prepare(self, block: Block) -> str:
        timeout = self._task.file.timeout_s
        boxes = block.boxes.described
        refusals = []
        for arm in self._arms:
            refusals.append(str(arm.request("prepare", timeout, boxes=boxes, graph=True)[0].get("refused", "")))
            if block.in_place:
                block.fill()
        if not any(refusals):
            return f"{block.calls} calls a block, CUDA graph"
        for arm in self._arms:
            arm.request("prepare", timeout, boxes=boxes, graph=False)
        return f"{block.calls} calls a block, eager ({next(filter(None, refusals)).splitlines()[0][:80]})"

    def _pairs(self, block: Block, looks: tuple[int, ...], limit_s: float) -> tuple[list[float], Evidence]:
        """The candidate's latency in ms in each block, and with two arms the pairs."""
        evidence = Evidence(rules=self._rules)
        latencies: list[float] = []
        self._began, self._verified_before = time.monotonic(), self._verified_s
        deadline = self._began + limit_s
        only = len(self._task.benchmark_cases(Backend.CUDA)) == 1
        for look in looks:
            while len(latencies) < look:
                order = list(range(len(self._arms)))
                self._order.shuffle(order)
                times = self._pair(block, order)
                latencies.append(times[0][0])
                if len(times) == 2:
                    evidence.pairs.append(Pair(times[0][0], times[1][0], times[0][1], times[1][1]))
                self._recorder.sample()
                if time.monotonic() > deadline and len(latencies) >= looks[0]:
                    break
            if strangers := self._recorder.busy_strangers():
                raise WorkerFailure(
                    Status.VOID, f"other processes used the GPU meanwhile: {named(strangers)}; measure again"
                )
            if len(self._arms) == 1 or evidence.is_decided(only) or time.monotonic() > deadline:
                break
        self._sweep(block)
        return latencies, evidence

    def _sweep(self, block: Block) -> None:
        """One more block of the candidate, and as many of its calls' outputs compared as half a second allows."""
        inputs = self._timed(block, 0, range(block.calls))[1]
        with self._clock("verify"):
            deadline = time.monotonic() + SWEEP_S
            for number in self._order.sample(range(block.calls), block.calls):
                self._verify(block, number, inputs[number], block.outputs(number))
                if time.monotonic() > deadline:
                    break

    def _pair(self, block: Block, order: list[int]) -> list[tuple[float, float]]:
        """One block of each arm, in that order, each on values of its own: (device, outer) ms a call, by arm."""
        times = [(0.0, 0.0)] * len(order)
        number = self._order.randrange(block.calls)
        for index in order:
            times[index], drawn = self._timed(block, index, [number])
            outputs = block.outputs(number)  # of either arm, so that both leave the same traces
            if index == 0:
                inputs, kept = drawn[number], outputs
        allowed_s = VERIFIED_SHARE * (time.monotonic() - self._began)
        if self._order.random() < CHECKED_SHARE and self._verified_s - self._verified_before <= allowed_s:
            with self._clock("verify"):
                self._verify(block, number, inputs, kept)
        return times

    @property
    def _verified_s(self) -> float:
        """Seconds that comparing outputs has taken, over all cases."""
        return self._clock.seconds.get("verify", 0.0)

    def _timed(self, block: Block, index: int, kept: Sequence[int]) -> tuple[tuple[float, float], dict[int, Inputs]]:
        """One block of arm `index`: its time a call in ms, by device events and by our clock; and the inputs that the
        calls `kept` were given."""
        arm, timeout = self._arms[index], self._task.file.timeout_s
        block.fill()
        block.poison()
        inputs = {number: block.inputs(number) for number in kept}
        arm.request("ping", timeout)
        torch.cuda.synchronize()
        gc.disable()
        started = time.perf_counter()
        block.show()
        self._other.sum()  # a read, so that no write-back is left for the block to pay for
        torch.cuda.synchronize()
        reply = arm.request("run", timeout)[0]
        wall = (time.perf_counter() - started) * 1e3
        gc.enable()
        elapsed = _milliseconds(reply)
        if elapsed > wall + CLOCK_SLACK_MS:
            raise WorkerFailure(
                Status.TAMPERED,
                f"a block claims {elapsed:.3f} ms of device time, but only {wall:.3f} ms passed",
                label=arm.label,
            )
        return (elapsed / block.calls, wall / block.calls), inputs

    def _verify(self, block: Block, number: int, inputs: Inputs, outputs: list[torch.Tensor]) -> None:
        """Compare a call's outputs, as they were handed over, with the reference."""
        found = judge_drawn(self._code, block.case, inputs, outputs, block.contract)
        if found.status is not Status.PASSED:
            where = f"{case_label(block.case)}, in timed call {number + 1} of {block.calls}"
            raise WorkerFailure(found.status, f"{where}: {found.message}")

    def _need_agreement(self, case: Case, evidence: Evidence, calls: int) -> None:
        """Raises `WorkerFailure` where the candidate's device times fall short of what passed on the outer clock, by
        more than the incumbent's do."""
        short = [
            (pair.outer_candidate - pair.candidate) - (pair.outer_incumbent - pair.incumbent) for pair in evidence.pairs
        ]
        low = statistics.interval(short).low
        scale = plain_statistics.median(pair.candidate for pair in evidence.pairs)
        if low > CLOCK_SHARE * scale + CLOCK_SLACK_MS / calls:
            raise WorkerFailure(
                Status.TAMPERED,
                f"{case_label(case)}: the two clocks disagree: the candidate's calls take {low:.6f} ms each, or more, "
                f"that its device events ({scale:.6f} ms) do not show and the incumbent's calls do not take",
            )


def need_possible(case: Case, latency_ms: float, work: Work, device: DeviceSpec | None) -> None:
    """Raises `WorkerFailure` where a call is faster than the data sheet's peaks allow."""
    floor = floor_ms(work, device, device.l2_bytes) if device is not None else 0.0
    if latency_ms < floor:
        raise WorkerFailure(
            Status.TAMPERED,
            f"{case_label(case)}: {latency_ms:.6f} ms is faster than the data sheet's peak allows ({floor:.6f} ms): "
            "the timed calls cannot have done the work",
        )


def _milliseconds(reply: dict[str, Any]) -> float:
    value = reply.get("ms")
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise WorkerFailure(Status.VOID, f"a worker reported {value!r} as a time")
    return float(value)


def paired(evidence: Evidence) -> dict[str, Any]:
    """What the pairs of one case say, as fields of a `CaseTiming`."""
    speedup, low, high = evidence.device.ratio()
    return {
        "incumbent_ms": plain_statistics.median(pair.incumbent for pair in evidence.pairs),
        "speedup": speedup,
        "speedup_low": low,
        "speedup_high": high,
        "pairs": len(evidence.pairs),
        "samples": [tuple(float(f"{value:.6g}") for value in pair) for pair in evidence.pairs],
    }
