"""Softmax over the rows of a matrix: out[m, n] = exp(x[m, n]) / sum_n(exp(x[m, n]))."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """x (M, N) of the case's dtype."""
    dtype = getattr(torch, case["dtype"])
    return {"x": torch.randn(case["M"], case["N"], generator=generator, device=generator.device, dtype=dtype)}


def reference(x):
    """out (M, N), of x's dtype."""
    return torch.softmax(x, dim=-1)


def work(case):
    """x read once, out written once; maximum, difference, exponential, sum and quotient of each element."""
    elements = case["M"] * case["N"]
    return Work(bytes=2 * elements * getattr(torch, case["dtype"]).itemsize, flops=5 * elements, dtype="float32")
