"""How fast a product stays when it is all that runs: cuBLAS, 8192 x 8192 x 8192 in fp16 and bf16, second after second.

python -m benchmarks.clock.sustained measure FILE [--seconds N]    on a GPU: windows of calls, with clock and power
python -m benchmarks.clock.sustained show FILE    anywhere

A window's time is by events around its calls. Inputs are normal, since zeros draw less power; clocks are not locked.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import pynvml
import torch
from benchmarks.recorded import header, read, write

SIZE, CALLS, REST_S = 8192, 20, 10.0
"""Calls of a window; seconds before each dtype in which the GPU does nothing."""
FLOPS = 2 * SIZE**3


def windows(dtype: torch.dtype, seconds: float) -> list[dict[str, float]]:
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=dtype) for _ in range(2))
    out = torch.empty_like(a)
    torch.mm(a, b, out=out)
    torch.cuda.synchronize()
    time.sleep(REST_S)
    found = []
    began = time.monotonic()
    while (at := time.monotonic() - began) < seconds:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(CALLS):
            torch.mm(a, b, out=out)
        end.record()
        mhz = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
        watts = pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3
        torch.cuda.synchronize()
        found.append({"s": round(at, 3), "ms": round(start.elapsed_time(end) / CALLS, 5), "mhz": mhz, "w": watts})
    return found


def summary(found: list[dict[str, float]]) -> dict[str, float]:
    """TFLOP/s of the fastest window, and the median of the last half of them."""
    steady = statistics.median(one["ms"] for one in found[len(found) // 2 :])
    return {
        "best_tflops": FLOPS / min(one["ms"] for one in found) / 1e9,
        "steady_tflops": FLOPS / steady / 1e9,
        "best_ms": min(one["ms"] for one in found),
        "steady_ms": steady,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "show"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=6.0, help="measure: of each dtype")
    asked = parser.parse_args()
    if asked.what == "measure":
        record: dict[str, Any] = header("clock.sustained measure FILE") | {"size": SIZE, "calls": CALLS, "dtypes": {}}
        for name in ("float16", "bfloat16"):
            found = windows(getattr(torch, name), asked.seconds)
            record["dtypes"][name] = summary(found) | {"windows": found}
        write(asked.file, record)
    record = read(asked.file)
    print(f"{record['gpu']}, {record['date']}, {record['versions']}")
    for name, one in record["dtypes"].items():
        clocks = [window["mhz"] for window in one["windows"]]
        print(
            f"{name}: {one['best_tflops']:.0f} TFLOP/s at best, {one['steady_tflops']:.0f} in the last half, of "
            f"{len(clocks)} windows at {min(clocks)} to {max(clocks)} MHz"
        )


if __name__ == "__main__":
    main()
