import statistics
import time

REPEATS = 21


def benchmark_framework(framework, function, mode="forward"):
    """Latencies of `function` in ms of CPU time, which is the device's, with their spread, under the framework's
    name."""
    function()
    times = []
    for _ in range(REPEATS):
        started = time.process_time()
        function()
        times.append((time.process_time() - started) * 1e3)
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
                "peak_mem_mb": 0,
            }
        }
    }
