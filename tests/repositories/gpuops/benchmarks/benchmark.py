import statistics
from pathlib import Path
from typing import ClassVar

import torch


class BenchmarkReport:
    rows: ClassVar[list[dict[str, object]]] = []

    @classmethod
    def record(cls, op, parameters, result, tag="gpuops"):
        cls.rows.append({"op": op, **parameters, "tag": tag, **result})

    @classmethod
    def dump(cls, path):
        lines = []
        for row in cls.rows:
            lines.append(" | ".join(f"{name}={value}" for name, value in row.items()))
        Path(path).write_text("\n".join(lines) + "\n")


class BenchmarkBase:
    """Times calls by CUDA events; the L2 cache is written over before each."""

    flushed_bytes = 256 * 2**20
    warm_up = 200
    repeats = 200

    def calculate_flops(self):
        raise NotImplementedError

    def profile(self, function):
        flushed = torch.empty(self.flushed_bytes, dtype=torch.int8, device="cuda")
        for _ in range(self.warm_up):
            flushed.zero_()
            function()
        torch.cuda.synchronize()
        timers = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(self.repeats)]
        for start, end in timers:
            flushed.zero_()
            start.record()
            function()
            end.record()
        torch.cuda.synchronize()
        latency = statistics.median(start.elapsed_time(end) for start, end in timers)
        return {"latency_ms": latency, "tflops": self.calculate_flops() / latency / 1e9}
