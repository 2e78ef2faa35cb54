"""What the device at hand reaches right now, and what an idle one looks like."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from tilewright.roofline.bounds import Ceilings

PROBES = 25
BUSY_FACTOR = 4.0
BUSY_SLACK_S = 3e-4
PATIENCE_S = 0.25


def measured_ceilings(tell: Callable[[str], None]) -> Ceilings:
    """What this GPU reaches right now: the fastest of 15 copies of 2 GiB, since what slows one is no ceiling, and the
    median of large matrix products by dtype (cuBLAS), which slow down as the card reaches its power limit."""
    tell("measuring the device's ceilings")
    source = torch.empty(2**29, dtype=torch.float32, device="cuda").normal_()
    target = torch.empty_like(source)
    copied = 2 * source.numel() * 4 / (min(_times_ms(partial(target.copy_, source))) / 1e3)
    del source, target
    flops = {}
    for dtype, size in ((torch.bfloat16, 8192), (torch.float16, 8192), (torch.float32, 4096)):
        left, right = (torch.randn(size, size, dtype=dtype, device="cuda") for _ in range(2))
        out = torch.empty_like(left)
        elapsed = statistics.median(_times_ms(partial(torch.matmul, left, right, out=out)))
        flops[str(dtype).removeprefix("torch.")] = 2 * size**3 / (elapsed / 1e3)
    torch.cuda.empty_cache()
    return Ceilings(copy_bytes_per_s=copied, flops=flops, measured=True)


class IdleProbe:
    """Tells whether another process keeps the GPU busy: a tiny kernel of ours then waits for its slice of time.

    To be made while nothing else runs on the GPU, before any candidate is there.
    """

    def __init__(self) -> None:
        self._cell = torch.zeros(1024, device="cuda")
        for _ in range(PROBES):
            self._once()
        self.idle_s = statistics.median(self._once() for _ in range(PROBES))

    def is_idle(self) -> bool:
        """Whether the GPU is idle now, or becomes so within a quarter of a second."""
        deadline = time.perf_counter() + PATIENCE_S
        while True:
            if self._once() < BUSY_FACTOR * self.idle_s + BUSY_SLACK_S:
                return True
            if time.perf_counter() > deadline:
                return False

    def _once(self) -> float:
        started = time.perf_counter()
        self._cell.add_(1)
        torch.cuda.synchronize()
        return time.perf_counter() - started


def _times_ms(call: Callable[[], Any], repeats: int = 15) -> list[float]:
    for _ in range(3):
        call()
    times: list[float] = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return times
