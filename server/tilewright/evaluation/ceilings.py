"""What the device at hand reaches right now."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from tilewright.roofline.bounds import Ceilings


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
