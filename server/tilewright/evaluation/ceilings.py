"""What the device at hand reaches right now."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from tilewright.roofline.bounds import Ceilings

COPY = 0.5
"""The share of a copy's bytes that is read."""


def measured_ceilings(tell: Callable[[str], None]) -> Ceilings:
    """What this GPU reaches right now: the fastest of 15 calls for each mix of reads and writes, since what slows one
    is no ceiling, and the median of large matrix products by dtype (cuBLAS), which slow down at the power limit."""
    tell("measuring the device's ceilings")
    mixes = _mixes()
    flops = {}
    for dtype, size in ((torch.bfloat16, 8192), (torch.float16, 8192), (torch.float32, 4096)):
        left, right = (torch.randn(size, size, dtype=dtype, device="cuda") for _ in range(2))
        out = torch.empty_like(left)
        elapsed = statistics.median(_times_ms(partial(torch.matmul, left, right, out=out)))
        flops[str(dtype).removeprefix("torch.")] = 2 * size**3 / (elapsed / 1e3)
    torch.cuda.empty_cache()
    return Ceilings(copy_bytes_per_s=mixes[COPY], flops=flops, measured=True, mixes=sorted(mixes.items()))


def _mixes() -> dict[float, float]:
    """Bytes a second of streams through 2 to 4 GiB, by the share of the bytes that is read."""
    source = torch.empty(2**29, dtype=torch.float32, device="cuda").normal_()
    target = torch.empty_like(source)
    (one, other), (third, out) = source.chunk(2), target.chunk(2)
    calls: dict[float, list[tuple[int, Callable[[], Any]]]] = {
        0.0: [(1, partial(target.fill_, 1.0))],
        COPY: [(2, partial(target.copy_, source)), (2, partial(torch.mul, source, 2.0, out=target))],
        2 / 3: [(3, partial(torch.add, one, other, out=out))],
        3 / 4: [(4, partial(torch.addcmul, one, other, third, out=out))],
        1.0: [(1, source.sum), (1, source.amax)],
    }
    sizes = {share: (source if share in (0.0, COPY, 1.0) else one).numel() * 4 for share in calls}
    return {
        share: max(streams * sizes[share] / (min(_times_ms(call)) / 1e3) for streams, call in several)
        for share, several in calls.items()
    }


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
