"""A linear layer with bias and ReLU: out = max(x @ w + bias, 0) * scale."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """x (M, K), w (K, N), bias (N,) of the case's dtype, and scale."""
    dtype, device = getattr(torch, case["dtype"]), generator.device
    x = torch.randn(case["M"], case["K"], generator=generator, device=device)
    w = torch.randn(case["K"], case["N"], generator=generator, device=device) * case["K"] ** -0.5
    bias = torch.randn(case["N"], generator=generator, device=device)
    return {"x": x.to(dtype), "w": w.to(dtype), "bias": bias.to(dtype), "scale": 0.75}


def reference(x, w, bias, scale):
    """out (M, N), of x's dtype."""
    return torch.relu(x @ w + bias) * scale


def work(case):
    """Every tensor read or written once."""
    m, n, k = case["M"], case["N"], case["K"]
    return Work(bytes=2 * (m * k + k * n + m * n + n), flops=2 * m * n * k, dtype=case["dtype"])
