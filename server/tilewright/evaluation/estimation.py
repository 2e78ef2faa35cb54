"""The referee's benchmark on the `cpu` backend: latencies from the roofline model, marked so, with its resolution."""

from __future__ import annotations

import math
from typing import Any

from pydantic import ValidationError

from tilewright.evaluation.correctness import cpu_arguments
from tilewright.evaluation.pool import WorkerFailure, WorkerHandle
from tilewright.evaluation.results import BenchmarkResult, CaseTiming, Status, geometric_mean
from tilewright.evaluation.taskcode import TaskCode
from tilewright.gpu.specs import DeviceSpec
from tilewright.roofline.bounds import Ceilings, roofline_ms
from tilewright.roofline.model import (
    DRAM_EFFICIENCY,
    MATRIX_EFFICIENCY,
    MODEL_RESOLUTION,
    LaunchProfile,
    modelled_ms,
)
from tilewright.task import Backend, Case, case_label

Profiles = dict[str, list[LaunchProfile]]
"""What one candidate's call launches, by case."""


def assumed_ceilings(device: DeviceSpec) -> Ceilings:
    """The rates that the model takes a device to sustain."""
    return Ceilings(
        copy_bytes_per_s=device.dram_bytes_per_s * DRAM_EFFICIENCY,
        flops={dtype: rate * MATRIX_EFFICIENCY for dtype, rate in device.flops.items()},
        measured=False,
    )


def send_inputs(worker: WorkerHandle, code: TaskCode, case: Case) -> None:
    """Give a worker a case's inputs. Their values decide nothing here, and so are drawn once and kept."""
    arguments, buffers = cpu_arguments(code.cached_inputs(case, seed=0))
    sets = [[argument.model_dump() for argument in arguments]]
    worker.request("inputs", code.task.file.timeout_s, list(buffers), sets=sets)


def profile(worker: WorkerHandle, code: TaskCode, case: Case) -> list[LaunchProfile]:
    """What the launches of one call on `case` do and occupy."""
    send_inputs(worker, code, case)
    reply, _ = worker.request("profile", code.task.file.timeout_s)
    try:
        return [LaunchProfile.model_validate(item) for item in reply["launches"]]
    except (KeyError, TypeError, ValidationError) as error:
        raise WorkerFailure(Status.CRASHED, f"the process described its launches wrongly: {error}") from None


def estimate(code: TaskCode, arms: list[Profiles], device: DeviceSpec) -> BenchmarkResult:
    """The modelled result of a candidate and, where `arms` holds two, the incumbent."""
    ceilings = assumed_ceilings(device)
    timings = []
    for case in code.task.benchmark_cases(Backend.CPU):
        latencies = [modelled_ms(profiles[case_label(case)], device) for profiles in arms]
        bound, kind = roofline_ms(code.work(case), ceilings)
        paired: dict[str, Any] = {}
        if len(arms) == 2:
            speedup = latencies[1] / latencies[0]
            paired = {"incumbent_ms": latencies[1], **_with_resolution(speedup)}
        timings.append(
            CaseTiming(
                case=case,
                latency_ms=latencies[0],
                roofline_percent=100 * bound / latencies[0],
                bound=kind,
                note="modelled",
                **paired,
            )
        )
    overall: dict[str, Any] = {}
    if len(arms) == 2:
        overall = _with_resolution(geometric_mean([timing.speedup or 1.0 for timing in timings]))
    return BenchmarkResult(
        status=Status.PASSED,
        modelled=True,
        latency_ms=geometric_mean([timing.latency_ms for timing in timings]),
        cases=timings,
        **overall,
    )


def _with_resolution(speedup: float) -> dict[str, float]:
    width = math.exp(math.log1p(MODEL_RESOLUTION))
    return {"speedup": speedup, "speedup_low": speedup / width, "speedup_high": speedup * width}
