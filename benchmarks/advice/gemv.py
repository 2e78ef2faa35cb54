"""A GEMV (n=7168, k=16384, float16) beside cuBLAS by a trace of many calls, and the first calls of a process.

Effective bandwidth is (k + n*k + n) * 2 bytes over the latency of a call; kernels of one call are summed.

python -m benchmarks.advice.gemv measure FILE    on a GPU
python -m benchmarks.advice.gemv check    anywhere: all configurations compile for sm_90, and are right
python -m benchmarks.advice.gemv show FILE    anywhere: the table
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from benchmarks.recorded import header, read, write

N, K = 7168, 16384
BYTES = 2 * (K + N * K + N)
PEAK = 4.8e12
"""An H200's memory bandwidth by its data sheet, in bytes/s."""
CALLS, TRIALS, WARM_UPS = 200, 20, 20
PART_S = 60.0
CONFIGS: list[tuple[int, int, int | None]] = [
    (1, 1024, None), (1, 2048, None), (1, 4096, None), (1, 8192, None), (1, 2048, 8), (1, 4096, 4), (1, 4096, 8),
    (2, 1024, None), (2, 2048, 8), (2, 4096, 4), (4, 512, None), (4, 1024, 4), (4, 1024, 8), (8, 512, 4), (8, 512, 8),
]  # fmt: skip
"""Rows of a block, length of a tile, and the hint for CTAs on an SM."""
Call = Callable[[], torch.Tensor]
Row = dict[str, Any]


def kernels() -> Any:
    path = Path(__file__).parents[1] / "kernels" / "gemv" / "kernel.py"
    spec = importlib.util.spec_from_file_location("gemv_kernels", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def ours(matrix: torch.Tensor, vector: torch.Tensor) -> dict[tuple[int, int, int | None], Call]:
    """A call of our kernel in each configuration."""
    module = kernels()
    found: dict[tuple[int, int, int | None], Call] = {}
    for rows, tile, occupancy in CONFIGS:
        kernel = module.gemv_kernel if occupancy is None else module.gemv_kernel.replace_hints(occupancy=occupancy)

        def call(kernel: Any = kernel, rows: int = rows, tile: int = tile) -> torch.Tensor:
            return module.gemv(matrix, vector, kernel, rows, tile)  # type: ignore[no-any-return]

        found[rows, tile, occupancy] = call
    return found


def made() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator("cuda").manual_seed(1)
    options = {"generator": generator, "device": "cuda", "dtype": torch.float16}
    return torch.randn(N, K, **options), torch.randn(K, **options)


def traced(work: Callable[[], None]) -> list[tuple[str, float, float]]:
    """Each kernel that `work` launched, in order: name, start and duration in us, by torch.profiler (CUPTI)."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as trace:
        work()
        torch.cuda.synchronize()
    found = [
        (event.name, float(event.time_range.start), float(event.time_range.elapsed_us()))
        for event in trace.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
    ]
    return sorted(found, key=lambda one: one[1])


def spread(durations: list[float]) -> Row:
    """What `nsys stats` shows of a name, in us."""
    figures = {
        "avg_us": statistics.fmean(durations), "med_us": statistics.median(durations), "min_us": min(durations),
        "max_us": max(durations), "stddev_us": statistics.pstdev(durations),
    }  # fmt: skip
    return {"launches": len(durations)} | {name: round(us, 3) for name, us in figures.items()}


def by_name(events: list[tuple[str, float, float]]) -> list[Row]:
    names = dict.fromkeys(name for name, _, _ in events)
    return [{"kernel": name} | spread([us for other, _, us in events if other == name]) for name in names]


def by_call(events: list[tuple[str, float, float]], calls: int) -> Row:
    """The kernels of each call summed, where every call launched as many; split-K parts are such."""
    each, rest = divmod(len(events), calls)
    if not each or rest:
        return {"error": f"{len(events)} kernels in {calls} calls: what belongs to a call is not known"}
    sums = [sum(us for _, _, us in events[first : first + each]) for first in range(0, len(events), each)]
    return {"kernels_a_call": each} | spread(sums) | rates(statistics.median(sums))


def rates(us: float) -> Row:
    return {"gb_s": round(BYTES / us / 1e3, 1), "peak_percent": round(100 * BYTES / (us * 1e-6) / PEAK, 1)}


def repeated(call: Call, times: int) -> Callable[[], None]:
    def work() -> None:
        for _ in range(times):
            call()

    return work


def once(call: Call) -> float:
    """One call's device time in ms."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def best_of(calls: dict[tuple[int, int, int | None], Call]) -> tuple[tuple[int, int, int | None], Row]:
    """The configuration with the shortest median kernel, by traces of a few calls each after warm-up."""
    medians = {}
    for config, call in calls.items():
        repeated(call, 5)()
        torch.cuda.synchronize()
        events = traced(repeated(call, TRIALS))
        medians[config] = statistics.median(us for _, _, us in events)
    best = min(medians, key=lambda config: medians[config])
    return best, {str(config): round(us, 3) for config, us in medians.items()}


def others(matrix: torch.Tensor, vector: torch.Tensor) -> dict[str, Call]:
    """What a user would call: cuBLAS on a vector, and on a matrix of one row, which takes another path."""
    row, turned = vector[None, :], matrix.t()
    return {
        "torch.matmul(B, a)": lambda: torch.matmul(matrix, vector),
        "torch.matmul(a[None], B.T)": lambda: row @ turned,
    }


def clean() -> Row:
    """Fixed config, warm-up outside of the trace, nothing beside it."""
    matrix, vector = made()
    calls = ours(matrix, vector)
    best, medians = best_of(calls)
    exact = matrix.double() @ vector.double()
    found: Row = {"best": list(best), "configs_med_us": medians, "arms": {}}
    arms: dict[str, Call] = {"cuTile": calls[best]} | others(matrix, vector)
    for name, call in arms.items():
        error = float((call().double().reshape(-1) - exact).norm() / exact.norm())
        repeated(call, WARM_UPS)()
        torch.cuda.synchronize()
        events = traced(repeated(call, CALLS))
        found["arms"][name] = {"error": error, "kernels": by_name(events), "calls": by_call(events, CALLS)}
    rounds: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(60):
        for name, call in arms.items():
            rounds[name].append(once(call))
    found["events_med_us"] = {name: round(1e3 * statistics.median(times), 3) for name, times in rounds.items()}
    return found


def unwarmed(config: tuple[int, int, int | None]) -> Row:
    """The first calls of a process: modules load, clocks rise."""
    call = ours(*made())[config]
    torch.cuda.synchronize()
    time.sleep(3)
    return {"each_us": [round(us, 3) for _, _, us in traced(repeated(call, 10))]}


def measure(path: Path) -> None:
    record: Row = header("advice.gemv measure FILE") | {
        "n": N, "k": K, "bytes": BYTES, "calls": CALLS, "trials": TRIALS,
        "parts": {"clean": clean()},
    }  # fmt: skip
    command = [sys.executable, "-m", "benchmarks.advice.gemv", "first", json.dumps(record["parts"]["clean"]["best"])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PART_S, check=True)
    record["parts"]["first calls"] = json.loads(done.stdout.splitlines()[-1])
    write(path, record)
    show(path)


def show(path: Path) -> None:
    record = read(path)
    print(f"{record['gpu']}, {record['date']}: n={record['n']} k={record['k']} float16, {record['bytes'] / 1e6:.1f} MB")
    found = record["parts"]["clean"]
    for name, arm in found["arms"].items():
        calls = arm["calls"]
        figures = ", ".join(f"{key} {calls[f'{key}_us']:.2f}" for key in ("avg", "med", "min", "max", "stddev"))
        print(f"{name:28} {figures} us; {calls['gb_s']:.0f} GB/s, {calls['peak_percent']:.0f}% of peak")
    print(f"best configuration (rows, tile, CTAs a SM): {found['best']} of {len(found['configs_med_us'])}")
    print(f"CUDA events, interleaved, median us: {found['events_med_us']}")
    print(f"first calls of a process, us: {record['parts']['first calls']['each_us']}")


def check() -> None:
    """Every configuration compiled for sm_90 at full size, and right in the interpreter on a small one."""
    from tilewright.compiler.assembling import assemble
    from tilewright.compiler.cutile import lower
    from tilewright.compiler.signature import signature_of
    from tilewright.gpu.specs import spec_by_arch
    from tilewright.interpreter import host

    host.install(spec_by_arch("sm_90"))
    module = kernels()
    matrix, vector = torch.randn(70, 3000).half(), torch.randn(3000).half()
    exact = matrix.double() @ vector.double()
    large = torch.empty(N, K, dtype=torch.float16), torch.empty(K, dtype=torch.float16), torch.empty(N).half()
    for (rows, tile, occupancy), call in ours(matrix, vector).items():
        with host.running(host.Mode.RUN):
            out = call()
        kernel = module.gemv_kernel if occupancy is None else module.gemv_kernel.replace_hints(occupancy=occupancy)
        done = assemble(lower(kernel, signature_of(kernel, (*large, rows, tile)), "sm_90"), 60.0)
        error = float((out.double() - exact).norm() / exact.norm())
        about = done.resources.headline(False, "sm_90") if done.resources else done.error
        print(f"{(rows, tile, occupancy)!s:18} error {error:.1e} {'ok' if error < 1e-3 else 'WRONG'}; {about}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "check", "show", "first"])
    parser.add_argument("file", nargs="?", default="", help="of the record")
    arguments = parser.parse_args()
    match arguments.what:
        case "check":
            check()
        case "first":  # in a process of its own, which `measure` starts
            print(json.dumps(unwarmed(tuple(json.loads(arguments.file)))))
        case "measure":
            measure(Path(arguments.file))
        case "show":
            show(Path(arguments.file))


if __name__ == "__main__":
    main()
