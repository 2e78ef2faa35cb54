"""The sum and the sum of squares of each row."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """x (M, N) of the case's dtype."""
    dtype = getattr(torch, case["dtype"])
    return {"x": torch.randn(case["M"], case["N"], generator=generator, device=generator.device, dtype=dtype)}


def reference(x):
    """sums (M,) and squares (M,)."""
    return x.sum(dim=-1), x.square().sum(dim=-1)


def work(case):
    """x read once, both sums written once."""
    return Work(bytes=4 * case["M"] * (case["N"] + 2), flops=3 * case["M"] * case["N"], dtype="float32")
