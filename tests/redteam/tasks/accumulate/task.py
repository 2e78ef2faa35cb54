"""Sum in place: y += alpha * x."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """x and y (N,) of the case's dtype, and alpha, which is drawn too."""
    dtype, device = getattr(torch, case["dtype"]), generator.device
    x = torch.randn(case["N"], generator=generator, device=device, dtype=dtype)
    y = torch.randn(case["N"], generator=generator, device=device, dtype=dtype)
    alpha = 0.5 + torch.rand(1, generator=generator, device=device).item()
    return {"x": x, "y": y, "alpha": alpha}


def reference(x, y, alpha):
    """y (N,), of its own dtype."""
    return y + alpha * x


def work(case):
    """x and y read once, y written once; a multiply-add for each element."""
    size = getattr(torch, case["dtype"]).itemsize
    return Work(bytes=3 * size * case["N"], flops=2 * case["N"], dtype="float32")
