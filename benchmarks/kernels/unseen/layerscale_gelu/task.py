"""Residual branch with layer scale: out = residual + gamma * x * sigmoid(1.702 x)."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    device, shape = generator.device, (case["tokens"], case["channels"])
    x = torch.randn(shape, generator=generator, device=device, dtype=torch.bfloat16)
    residual = torch.randn(shape, generator=generator, device=device, dtype=torch.bfloat16)
    gamma = torch.randn(case["channels"], generator=generator, device=device, dtype=torch.bfloat16)
    return {"x": x, "residual": residual, "gamma": gamma}


def reference(x, residual, gamma):
    return residual + gamma * x * torch.sigmoid(1.702 * x)


def work(case):
    elements = case["tokens"] * case["channels"]
    return Work(bytes=3 * elements * 2 + case["channels"] * 2, flops=7 * elements, dtype="float32")
