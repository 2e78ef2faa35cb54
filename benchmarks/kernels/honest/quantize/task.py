"""A matrix in int8 by a scale for each row: out = clip(round(x / scale), -127, 127)."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """x (M, N) of the case's dtype, scale (M,) float32."""
    device = generator.device
    x = torch.randn(case["M"], case["N"], generator=generator, device=device)
    scale = 0.02 + 0.02 * torch.rand(case["M"], generator=generator, device=device)
    return {"x": x.to(getattr(torch, case["dtype"])), "scale": scale}


def reference(x, scale):
    """out (M, N) int8."""
    return torch.clamp(torch.round(x / scale[:, None]), -127, 127).to(torch.int8)


def work(case):
    """x read once, out written once."""
    elements = case["M"] * case["N"]
    return Work(bytes=elements * (getattr(torch, case["dtype"]).itemsize + 1), flops=3 * elements, dtype="float32")
