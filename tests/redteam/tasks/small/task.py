"""Elementwise product with a number: out = x * factor."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """x (N,) of the case's dtype, and factor, which is drawn too."""
    dtype, device = getattr(torch, case["dtype"]), generator.device
    x = torch.randn(case["N"], generator=generator, device=device, dtype=dtype)
    factor = 0.5 + torch.rand(1, generator=generator, device=device).item()
    return {"x": x, "factor": factor}


def reference(x, factor):
    """out (N,), of x's dtype."""
    return x * factor


def work(case):
    """x read once, out written once; one multiplication for each element."""
    size = getattr(torch, case["dtype"]).itemsize
    return Work(bytes=2 * size * case["N"], flops=case["N"], dtype="float32")
