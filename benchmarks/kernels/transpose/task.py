"""The transpose of a matrix, scaled."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """x (M, N) of the case's dtype, and factor."""
    dtype = getattr(torch, case["dtype"])
    x = torch.randn(case["M"], case["N"], generator=generator, device=generator.device, dtype=torch.float32)
    return {"x": x.to(dtype), "factor": 0.3}


def reference(x, factor):
    """out (N, M), contiguous."""
    return (x.t() * factor).contiguous()


def work(case):
    """x read once, out written once."""
    return Work(bytes=4 * case["M"] * case["N"], flops=case["M"] * case["N"], dtype="float32")
