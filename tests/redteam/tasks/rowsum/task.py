"""Sum of each row, in float32: out[m] = sum_n x[m, n]."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """x (M, N) of the case's dtype, off zero, so that no sum is small beside its terms."""
    dtype = getattr(torch, case["dtype"])
    x = torch.rand(case["M"], case["N"], generator=generator, device=generator.device, dtype=dtype) + 0.25
    return {"x": x}


def reference(x):
    """out (M,), of x's dtype."""
    return x.sum(dim=-1)


def work(case):
    """x read once, out written once; one addition for each element."""
    size = getattr(torch, case["dtype"]).itemsize
    return Work(bytes=size * case["M"] * (case["N"] + 1), flops=case["M"] * case["N"], dtype="float32")
