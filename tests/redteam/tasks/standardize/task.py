"""Rows with mean 0 and variance 1, times a weight: out = (x - mean) / sqrt(variance + 1e-5) * weight."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """x (M, N) and weight (N,) of the case's dtype."""
    dtype, device = getattr(torch, case["dtype"]), generator.device
    x = torch.randn(case["M"], case["N"], generator=generator, device=device, dtype=dtype)
    weight = 0.5 + torch.rand(case["N"], generator=generator, device=device, dtype=dtype)
    return {"x": x, "weight": weight}


def reference(x, weight):
    """out (M, N), of x's dtype."""
    return torch.nn.functional.layer_norm(x, x.shape[1:], eps=1e-5) * weight


def work(case):
    """x read once, out written once; some eight operations for each element."""
    elements = case["M"] * case["N"]
    size = getattr(torch, case["dtype"]).itemsize
    return Work(bytes=size * (2 * elements + case["N"]), flops=8 * elements, dtype="float32")
