import statistics

import torch

FLUSHED_BYTES = 256 * 2**20
WARM_UP = 200
REPEATS = 200


def benchmark_framework(framework, function, mode="forward"):
    """Latencies of `function` in ms by CUDA events, with their spread, under the framework's name. What was written
    before every call is larger than any L2 cache, so that each starts cold."""
    flushed = torch.empty(FLUSHED_BYTES, dtype=torch.int8, device="cuda")
    for _ in range(WARM_UP):
        flushed.zero_()
        function()
    torch.cuda.synchronize()
    timers = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(REPEATS)]
    for start, end in timers:
        flushed.zero_()
        start.record()
        function()
        end.record()
    torch.cuda.synchronize()
    times = [start.elapsed_time(end) for start, end in timers]
    mean, std = statistics.fmean(times), statistics.stdev(times)
    return {
        framework: {
            mode: {
                "mean": mean,
                "std": std,
                "rel_std": 100 * std / mean,
                "median": statistics.median(times),
                "min": min(times),
                "max": max(times),
                "nrep": len(times),
                "peak_mem_mb": torch.cuda.max_memory_allocated() // 2**20,
            }
        }
    }
