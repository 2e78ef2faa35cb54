"""Where one vector is above another, and by less than a limit: out = (x > y) & (x < y + limit)."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """x and y (N,) of the case's dtype, and limit."""
    dtype, device = getattr(torch, case["dtype"]), generator.device
    x = torch.randn(case["N"], generator=generator, device=device).to(dtype)
    y = torch.randn(case["N"], generator=generator, device=device).to(dtype)
    return {"x": x, "y": y, "limit": 0.75}


def reference(x, y, limit):
    """out (N,) of bools."""
    return (x > y) & (x < y + limit)


def work(case):
    """x and y read once, out written once."""
    size = getattr(torch, case["dtype"]).itemsize
    return Work(bytes=(2 * size + 1) * case["N"], flops=3 * case["N"], dtype="float32")
