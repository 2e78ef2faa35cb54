"""Rotary position embedding in place: pairs (x[d], x[d + D/2]) turned by a position's angle."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """x (H, S, D), cos and sin (S, D/2), of the case's dtype."""
    dtype, device = getattr(torch, case["dtype"]), generator.device
    x = torch.randn(case["H"], case["S"], case["D"], generator=generator, device=device)
    angles = 6.3 * torch.rand(case["S"], case["D"] // 2, generator=generator, device=device)
    return {"x": x.to(dtype), "cos": angles.cos().to(dtype), "sin": angles.sin().to(dtype)}


def reference(x, cos, sin):
    """x, of its own shape and dtype."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def work(case):
    """x read and written once; six flops for each pair."""
    elements = case["H"] * case["S"] * case["D"]
    return Work(bytes=2 * elements * getattr(torch, case["dtype"]).itemsize, flops=3 * elements, dtype="float32")
