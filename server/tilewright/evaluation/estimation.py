"""The referee's benchmark on the `cpu` backend: latencies from the roofline model, marked so, with its resolution.

A modelled figure is for honest use: a worker itself says what its candidate's call launches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.evaluation.calling import send_arguments
from tilewright.evaluation.pool import WorkerFailure, WorkerHandle
from tilewright.evaluation.results import BenchmarkResult, CaseTiming, KernelUse, Level, Status, geometric_mean
from tilewright.evaluation.taskcode import TaskCode
from tilewright.gpu.specs import DeviceSpec
from tilewright.roofline.bounds import Ceilings, floor_ms, intensity_class, roofline_share
from tilewright.roofline.model import (
    DRAM_EFFICIENCY,
    KERNEL_ERROR,
    MATRIX_EFFICIENCY,
    CallProfile,
    Estimate,
    estimate_call,
)
from tilewright.task import Backend, Case, Work, case_label
from tilewright.wire.record import misfit

COMPULSORY_SHARE = 0.9
"""The share of the compulsory bytes, and of the compulsory flops, that a call's sampled blocks must account for.

What is missing to 1 is left to the error of sampling.
"""
TWO_MODELS = "a model of torch operations and a model of kernels are compared"
Profiles = dict[str, CallProfile]
"""What one candidate's call does, by case."""


def assumed_ceilings(device: DeviceSpec) -> Ceilings:
    """The rates that the model takes a device to sustain."""
    return Ceilings(
        copy_bytes_per_s=device.dram_bytes_per_s * DRAM_EFFICIENCY,
        flops={dtype: rate * MATRIX_EFFICIENCY for dtype, rate in device.flops.items()},
        measured=False,
    )


def send_inputs(worker: WorkerHandle, code: TaskCode, case: Case) -> None:
    """Give a worker a case's inputs. Their values decide nothing here, and so are drawn once and kept."""
    send_arguments(worker, code.task, code.arguments(case, code.cached_inputs(case, seed=0)))


def profile(worker: WorkerHandle, code: TaskCode, case: Case) -> CallProfile:
    """What one call on `case` launches and computes, by a sample of its blocks."""
    send_inputs(worker, code, case)
    reply, _ = worker.request("profile", code.task.file.timeout_s)
    try:
        return CallProfile.model_validate(reply["profile"])
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise WorkerFailure(Status.CRASHED, f"the process described its launches wrongly: {misfit(error)}") from None


def profiles(worker: WorkerHandle, code: TaskCode, tell: Callable[[str], None]) -> Profiles:
    """What one call on each benchmark case does."""
    found: Profiles = {}
    for case in code.task.benchmark_cases(Backend.CPU):
        tell(f"modelling {case_label(case)}")
        found[case_label(case)] = profile(worker, code, case)
    return found


def _kernels(call: CallProfile) -> list[KernelUse]:
    """What each kernel of a call occupies."""
    used = {launch.kernel: launch.resources for launch in call.launches}
    return [KernelUse.of(name, resources) for name, resources in used.items()]


def shortfall(profile: CallProfile, latency_ms: float, work: Work, device: DeviceSpec) -> str:
    """What of the compulsory work a call leaves out, by what its sampled blocks do; empty where it does all."""
    moved = profile.dram_bytes
    where = "its kernels, as sampled," if profile.launches else "its torch operations"
    floor = floor_ms(work, device, resident_bytes=0)  # the model takes caches to be cold
    if latency_ms < floor:
        return (
            f"modelled at {latency_ms:.6f} ms, below the {floor:.6f} ms that the data sheet's peaks allow: {where} "
            f"move {moved / 1e6:.1f} MB, where the work is {work.bytes / 1e6:.1f} MB and {work.flops / 1e9:.1f} Gflop"
        )
    if intensity_class(work) == "compute-bound" and profile.flops < COMPULSORY_SHARE * work.flops:
        return (
            f"{where} do {profile.flops / 1e9:.1f} Gflop, and the work is {work.flops / 1e9:.1f}: it is not done, or "
            "done by another algorithm; measure such a kernel on a GPU"
        )
    if moved < COMPULSORY_SHARE * work.bytes:
        return (
            f"{where} move {moved / 1e6:.1f} MB, and {work.bytes / 1e6:.1f} MB have to be read and written at least: "
            "the rest of the work is not done, or done where the model does not see it; measure such a kernel on a GPU"
        )
    return ""


def estimate(code: TaskCode, arms: list[Profiles], device: DeviceSpec, resolution: float) -> BenchmarkResult:
    """The modelled result of a candidate and, where `arms` holds two, the incumbent. `resolution` is the least gain
    that counts, as a share."""
    ceilings = assumed_ceilings(device)
    timings = []
    two_models = False
    for case in code.task.benchmark_cases(Backend.CPU):
        calls = [profiles[case_label(case)] for profiles in arms]
        estimates = [estimate_call(call, device) for call in calls]
        latency = estimates[0].ms
        work = code.work(case)
        percent, bound = roofline_share(latency, work, ceilings)
        moved = calls[0].dram_bytes
        if code.has_work and (found := shortfall(calls[0], latency, work, device)):
            return BenchmarkResult(status=Status.TAMPERED, level=Level.MODELLED, message=f"{case_label(case)}: {found}")
        paired: dict[str, Any] = {}
        if len(arms) == 2:
            paired = {"incumbent_ms": estimates[1].ms, **_with_interval(estimates[1].ms / latency, calls, resolution)}
        two_models |= (here := _two_models(calls))
        timings.append(
            CaseTiming(
                case=case,
                level=Level.MODELLED,
                weight=code.task.weight(case),
                latency_ms=latency,
                roofline_percent=percent,
                bound=bound,
                work_bytes=work.bytes,
                kernels=_kernels(calls[0]),
                note=f"modelled: mostly {estimates[0].limit} ({in_parts(estimates[0])}); moves "
                f"{moved / 1e6:.1f} MB, the work is {work.bytes / 1e6:.1f} MB; the "
                f"interval is the model's {f'error: {TWO_MODELS}' if here else 'resolution'}",
                **paired,
            )
        )
    overall: dict[str, Any] = {}
    weights = [timing.weight for timing in timings]
    if len(arms) == 2:
        ends = ("speedup", "speedup_low", "speedup_high")
        overall = {name: geometric_mean([getattr(timing, name) for timing in timings], weights) for name in ends}
    return BenchmarkResult(
        status=Status.PASSED,
        message=TWO_MODELS if two_models else "",
        level=Level.MODELLED,
        latency_ms=geometric_mean([timing.latency_ms for timing in timings], weights),
        cases=timings,
        same=len(arms) == 2 and arms[0] == arms[1] and all(profile.launches for profile in arms[0].values()),
        **overall,
    )


def in_parts(estimate: Estimate) -> str:
    """The parts of a latency, and what they come to: units work at the same time, so that parts overlap."""
    found = sorted(estimate.terms.items(), key=lambda item: -item[1])
    parts = [f"{name} ~{ms:.4f} ms" for name, ms in found if ms > 0.01 * estimate.ms]
    whole = f": ~{estimate.ms:.4f} ms in all, with what overlaps counted once" if parts[1:] else ""
    return f"{', '.join(parts)}{whole}"


def _two_models(calls: list[CallProfile]) -> bool:
    return len({bool(call.launches) for call in calls}) > 1


def _with_interval(speedup: float, calls: list[CallProfile], resolution: float) -> dict[str, float]:
    """The speedup of a candidate's call over an incumbent's, with what it may be. An error that both share cancels."""
    below = above = 1 + resolution
    if _two_models(calls):
        least, most = KERNEL_ERROR
        below, above = (1 / least, most) if calls[0].launches else (most, 1 / least)
    return {"speedup": speedup, "speedup_low": speedup / below, "speedup_high": speedup * above}
