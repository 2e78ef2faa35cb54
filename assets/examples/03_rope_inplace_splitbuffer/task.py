"""Rotary position embedding of queries and keys, in place: pairs (x[d], x[d + D/2]) turned by a position's angle."""

import torch

from tilewright.task import Work

BASE = 10000.0


def make_inputs(case, generator):
    """q (B, H, S, D), k (B, KV, S, D), cos and sin (S, D/2), of the case's dtype, on the generator's device."""
    dtype, device = getattr(torch, case["dtype"]), generator.device
    batch, length, width = case["B"], case["S"], case["D"]
    q = torch.randn(batch, case["H"], length, width, generator=generator, device=device, dtype=dtype)
    k = torch.randn(batch, case["KV"], length, width, generator=generator, device=device, dtype=dtype)
    frequencies = BASE ** (-torch.arange(0, width, 2, device=device, dtype=torch.float64) / width)
    start = torch.randint(0, 4096, (1,), generator=generator, device=device)
    angles = (start + torch.arange(length, device=device)).to(torch.float64)[:, None] * frequencies
    return {"q": q, "k": k, "cos": angles.cos().to(dtype), "sin": angles.sin().to(dtype)}


def reference(q, k, cos, sin):
    """q and k rotated, each of its own shape and dtype."""

    def rotated(x):
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    return rotated(q), rotated(k)


def work(case):
    """q and k read and written once, cos and sin read once; six flops for each pair."""
    size = getattr(torch, case["dtype"]).itemsize
    elements = case["B"] * (case["H"] + case["KV"]) * case["S"] * case["D"]
    return Work(bytes=(2 * elements + case["S"] * case["D"]) * size, flops=3 * elements, dtype="float32")
