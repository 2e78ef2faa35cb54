"""An elementwise map into an argument: out = x * sigmoid(x)."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """x (N,) of the case's dtype."""
    x = torch.randn(case["N"], generator=generator, device=generator.device)
    return {"x": x.to(getattr(torch, case["dtype"]))}


def reference(x):
    """out (N,), of x's dtype."""
    return x * torch.sigmoid(x)


def work(case):
    """x read once, out written once."""
    return Work(bytes=2 * getattr(torch, case["dtype"]).itemsize * case["N"], flops=4 * case["N"], dtype="float32")
