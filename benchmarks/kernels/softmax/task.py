"""Softmax over the rows of a matrix."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """x (M, N) of the case's dtype."""
    dtype = getattr(torch, case["dtype"])
    return {"x": torch.randn(case["M"], case["N"], generator=generator, device=generator.device, dtype=dtype) * 3}


def reference(x):
    """out (M, N)."""
    return torch.softmax(x, dim=-1)


def work(case):
    """x read once, out written once."""
    return Work(bytes=8 * case["M"] * case["N"], flops=5 * case["M"] * case["N"], dtype="float32")
