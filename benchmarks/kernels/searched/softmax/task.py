"""Softmax over the rows of a matrix."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """x (M, N) of the case's dtype, on the generator's device."""
    dtype = getattr(torch, case["dtype"])
    return {"x": torch.randn(case["M"], case["N"], generator=generator, device=generator.device, dtype=dtype) * 3}


def reference(x):
    """out (M, N), of x's dtype."""
    return torch.softmax(x, dim=-1)


def work(case):
    """x read once, out written once."""
    elements = case["M"] * case["N"]
    size = getattr(torch, case["dtype"]).itemsize
    return Work(bytes=2 * elements * size, flops=5 * elements, dtype="float32")
