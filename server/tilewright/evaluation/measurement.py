"""What cannot be replayed is timed in its own process: candidate and incumbent, in turns, in random order.

In each turn a worker is given new values, and times some calls by device events, each from a cold cache. Of some turns,
the first and the last among them, the outputs of the last call are compared with the reference. Its times are the
worker's own word.
"""

from __future__ import annotations

import contextlib
import math
import random
import statistics as plain_statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tilewright.evaluation.calling import Boxes, share_inputs
from tilewright.evaluation.correctness import judge_drawn
from tilewright.evaluation.pool import WorkerFailure, WorkerHandle
from tilewright.evaluation.results import CaseTiming, Environment, Level, Status
from tilewright.evaluation.seeds import Seeds
from tilewright.evaluation.statistics import Interval, Pair, decided, gain, paired
from tilewright.evaluation.taskcode import Inputs, TaskCode, tensor_bytes
from tilewright.gpu.specs import DeviceSpec, spec_by_name
from tilewright.gpu.telemetry import Recorder, named
from tilewright.roofline.bounds import floor_ms, roofline_share
from tilewright.rules import DEFAULT, Rules
from tilewright.task import Backend, Case, TaskError, Work, case_label

TURN_MS = 10.0
"""Device time that the calls of a turn aim at."""
MOST_CALLS = 64
"""Calls of a turn."""
FIRST_CALLS = 3
"""Calls of an arm's first turn, which compiles and tunes, and says how many calls the others make."""
TIME_LIMIT_S = 8.0
"""For the pairs of all cases together; then what there is decides."""
CHECKED_SHARE = 0.5
"""Share of the pairs after which the candidate's outputs are compared."""
VERIFIED_SHARE = 0.5
"""Of the time that pairs take, beyond which no more outputs are compared: a reference may be slow."""


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
        self._arms = arms
        self._environment = environment
        self._clock = clock
        self._recorder = recorder
        self._order = random.SystemRandom()
        self._device = spec_by_name(environment.device)

    def case(
        self, case: Case, seeds: Seeds, looks: tuple[int, ...], limit_s: float
    ) -> tuple[CaseTiming, Interval | None]:
        """Measure one case until a look decides it, or `limit_s` seconds have passed; with two arms, the gain, too."""
        turns = _Turns(self._code, case, seeds)
        with self._clock("compile and warm up"):
            slowest = max(self._turn(turns, index, FIRST_CALLS, checked=index == 0) for index in range(len(self._arms)))
        calls = min(max(math.ceil(TURN_MS / slowest), 1), MOST_CALLS)
        with self._clock("measure"):
            latencies, pairs = self._pairs(turns, calls, looks, limit_s)
            self._turn(turns, 0, 1, checked=True)
        latency = plain_statistics.median(latencies)
        work = replace(self._code.work(case), written=tensor_bytes(dict(enumerate(turns.contract))))
        percent, bound = roofline_share(latency, work, self._environment.ceilings)
        if self._code.has_work:
            need_possible(case, latency, work, self._device)
        notes = (
            f"{calls} calls a turn",
            "" if self._device else f"no data sheet of {self._environment.device}: latencies have no floor",
            "" if bound else "no measured ceiling applies",
        )
        found = gain(pairs, self._rules) if pairs else None
        timing = CaseTiming(
            case=case,
            level=Level.IN_PROCESS,
            latency_ms=latency,
            roofline_percent=percent,
            bound=bound,
            work_bytes=work.bytes,
            note="; ".join(filter(None, notes)),
            **(paired(pairs, found) if found else {}),
        )
        return timing, found

    def _pairs(
        self, turns: _Turns, calls: int, looks: tuple[int, ...], limit_s: float
    ) -> tuple[list[float], list[Pair]]:
        """The candidate's latency in ms in each turn, and with two arms the pairs."""
        latencies: list[float] = []
        pairs: list[Pair] = []
        began, before = time.monotonic(), self._verified_s
        for look in looks:
            while len(latencies) < look:
                late = self._verified_s - before > VERIFIED_SHARE * (time.monotonic() - began)
                checked = not late and self._order.random() < CHECKED_SHARE
                times = [0.0] * len(self._arms)
                for index in self._order.sample(range(len(times)), len(times)):
                    times[index] = self._turn(turns, index, calls, checked and index == 0)
                latencies.append(times[0])
                if len(times) == 2:
                    pairs.append((times[0], times[1]))
                self._recorder.sample()
                if time.monotonic() > began + limit_s and len(latencies) >= looks[0]:
                    break
            if strangers := self._recorder.busy_strangers():
                raise WorkerFailure(
                    Status.VOID, f"other processes used the GPU meanwhile: {named(strangers)}; measure again"
                )
            if not pairs or self._is_decided(gain(pairs, self._rules)) or time.monotonic() > began + limit_s:
                break
        return latencies, pairs

    def _is_decided(self, found: Interval) -> bool:
        """Whether more pairs would change nothing. If there are several cases, it is also known whether this one is a
        regression: a gain in another does not make up for that."""
        loss = math.log1p(-self._rules.regression)
        only = len(self._code.task.benchmark_cases(Backend.CUDA)) == 1
        return decided(found, self._rules) and (only or found.low > loss or found.high < loss)

    @property
    def _verified_s(self) -> float:
        """Seconds that comparing outputs has taken, over all cases."""
        return self._clock.seconds.get("verify", 0.0)

    def _turn(self, turns: _Turns, index: int, calls: int, checked: bool) -> float:
        """Some calls of an arm on new values: the median of their times in ms. If `checked`, the outputs of the last
        one are compared with the reference. Raises `WorkerFailure`."""
        ms, inputs, outputs = turns.take(self._arms[index], calls)
        if checked:
            with self._clock("verify"):
                found = judge_drawn(self._code, turns.case, inputs, outputs, turns.contract)
            if found.status is not Status.PASSED:
                raise WorkerFailure(found.status, f"{case_label(turns.case)}, in a timed call: {found.message}")
        return ms


class _Turns:
    """The values of a case's turns."""

    def __init__(self, code: TaskCode, case: Case, seeds: Seeds) -> None:
        self.case = case
        self._code = code
        self._seeds = seeds
        self._first = code.inputs(case, seeds.next())
        self.contract = code.contract(case, self._first)

    def take(self, arm: WorkerHandle, calls: int) -> tuple[float, Inputs, list[torch.Tensor]]:
        """Have an arm make some calls on new values: the median of their times in ms, the values, and what the last
        call gave. Raises `WorkerFailure`, and `TaskError` where draws are of several shapes."""
        timeout_s, outputs = self._code.task.file.timeout_s, self._code.task.file.outputs
        inputs = self._code.inputs(self.case, self._seeds.next())
        need_shapes(self._first, inputs)
        arguments = self._code.arguments(self.case, inputs, self.contract)
        shared, described = share_inputs(arguments)
        for name in arguments.keys() - inputs.keys():
            shared[name].poison()
        boxes = Boxes(self.contract)
        arm.request("inputs", timeout_s, sets=[[argument.model_dump() for argument in described]])
        written = [name for name in outputs if name in inputs]
        reply, _ = arm.request("time", timeout_s, boxes=boxes.described, calls=calls, written=written)
        arm.request("inputs", timeout_s, sets=[])  # it lets go of shared memory before that is freed here
        return _milliseconds(reply, calls), inputs, boxes.tensors()


def need_possible(case: Case, latency_ms: float, work: Work, device: DeviceSpec | None) -> None:
    """Raises `WorkerFailure` where a call is faster than the data sheet's peaks allow."""
    floor = floor_ms(work, device, device.l2_bytes) if device is not None else 0.0
    if latency_ms < floor:
        raise WorkerFailure(
            Status.TAMPERED,
            f"{case_label(case)}: {latency_ms:.6f} ms is faster than the data sheet's peak allows ({floor:.6f} ms): "
            "the timed calls cannot have done the work",
        )


def _milliseconds(reply: dict[str, Any], calls: int) -> float:
    """The median of what a worker says of its calls."""
    values = reply.get("ms")
    if not isinstance(values, list) or len(values) != calls:
        raise WorkerFailure(Status.VOID, f"a worker reported {values!r} as the times of {calls} calls")
    for value in values:
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            raise WorkerFailure(Status.VOID, f"a worker reported {value!r} as a time")
    return float(plain_statistics.median(values))


def need_shapes(first: Inputs, drawn: Inputs) -> None:
    """Raises `TaskError` where a draw's tensors are not of the shapes of the first draw."""
    for name, like in first.items():
        value = drawn.get(name)
        if isinstance(like, torch.Tensor) and isinstance(value, torch.Tensor) and value.shape != like.shape:
            raise TaskError(
                f"task.py: make_inputs gives {name!r} the shape {tuple(like.shape)} for one seed and "
                f"{tuple(value.shape)} for another, which can be checked but not measured on a GPU, where all calls of "
                "a case are of one size: let the case's own values decide the shapes"
            )
