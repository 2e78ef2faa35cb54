"""Attention forward, without a mask: softmax(q k^T / sqrt(D)) v for each head."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """q, k and v (B, H, S, D) of the case's dtype, on the generator's device."""
    shape, dtype = (case["B"], case["H"], case["S"], case["D"]), getattr(torch, case["dtype"])
    return {
        name: torch.randn(shape, generator=generator, device=generator.device, dtype=dtype) for name in ("q", "k", "v")
    }


def reference(q, k, v):
    """out (B, H, S, D), of q's dtype; one batch at a time, since the scores take much memory."""
    scale = q.shape[-1] ** -0.5
    parts = [torch.softmax(a @ b.transpose(-1, -2) * scale, dim=-1) @ c for a, b, c in zip(q, k, v, strict=True)]
    return torch.stack(parts)


def work(case):
    """Every tensor read or written once; two products."""
    b, h, s, d = case["B"], case["H"], case["S"], case["D"]
    size = getattr(torch, case["dtype"]).itemsize
    return Work(bytes=4 * b * h * s * d * size, flops=4 * b * h * s * s * d, dtype=case["dtype"])
