"""Backward of layer norm over the last axis: gradients of the input, the weight and the bias."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """dy, x (M, N) of the case's dtype, weight (N,) of it, mean and rstd (M,) float32."""
    dtype, device = getattr(torch, case["dtype"]), generator.device
    m, n = case["M"], case["N"]
    x = torch.randn(m, n, generator=generator, device=device).to(dtype)
    dy = torch.randn(m, n, generator=generator, device=device).to(dtype)
    weight = torch.randn(n, generator=generator, device=device).to(dtype)
    rows = x.float()
    mean = rows.mean(1)
    rstd = (rows.var(1, correction=0) + 1e-5).rsqrt()
    return {"dy": dy, "x": x, "weight": weight, "mean": mean, "rstd": rstd}


def reference(dy, x, weight, mean, rstd):
    """dx (M, N) of x's dtype, dweight and dbias (N,) float32."""
    xhat = (x - mean[:, None]) * rstd[:, None]
    g = dy * weight
    dx = rstd[:, None] * (g - g.mean(1, keepdim=True) - xhat * (g * xhat).mean(1, keepdim=True))
    return dx.to(x.dtype), (dy * xhat).sum(0).float(), dy.sum(0).float()


def work(case):
    """dy and x read once, dx written once; the rest is small."""
    m, n = case["M"], case["N"]
    return Work(bytes=6 * m * n, flops=14 * m * n, dtype="float32")
