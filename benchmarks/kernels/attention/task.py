"""Attention forward: softmax(q k^T / sqrt(D)) v for each head."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """q (H, S, D), k (H, L, D), v (H, L, D) of the case's dtype."""
    dtype, device = getattr(torch, case["dtype"]), generator.device
    shapes = {"q": (case["H"], case["S"], case["D"]), "k": (case["H"], case["L"], case["D"])}
    shapes["v"] = shapes["k"]
    return {name: torch.randn(shape, generator=generator, device=device).to(dtype) for name, shape in shapes.items()}


def reference(q, k, v):
    """out (H, S, D), of q's dtype."""
    return torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, dim=-1) @ v


def work(case):
    """Every tensor read or written once."""
    h, s, length, d = case["H"], case["S"], case["L"], case["D"]
    return Work(bytes=4 * h * d * (s + length), flops=4 * h * s * length * d, dtype=case["dtype"])
