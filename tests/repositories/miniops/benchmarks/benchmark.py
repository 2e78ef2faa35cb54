import time
from pathlib import Path
from typing import ClassVar


class BenchmarkReport:
    rows: ClassVar[list[dict[str, object]]] = []

    @classmethod
    def record(cls, op, parameters, result, tag="miniops"):
        cls.rows.append({"op": op, **parameters, "tag": tag, **result})

    @classmethod
    def dump(cls, path):
        lines = []
        for row in cls.rows:
            lines.append(" | ".join(f"{name}={value}" for name, value in row.items()))
        Path(path).write_text("\n".join(lines) + "\n")


class BenchmarkBase:
    """Times calls by the process's own CPU time: the device is the CPU, and others may use it too, so
    that the least disturbed call counts."""

    def calculate_flops(self):
        raise NotImplementedError

    def profile(self, function):
        function()
        times = []
        for _ in range(21):
            started = time.process_time()
            function()
            times.append((time.process_time() - started) * 1e3)
        latency = min(times)
        return {"latency_ms": latency, "tflops": self.calculate_flops() / latency / 1e9}
