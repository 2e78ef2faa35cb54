"""Layer normalisation over the rows of a matrix, with gain and bias."""

import torch

from tilewright.task import Work

EPS = 1e-3


def make_inputs(case, generator):
    """x (M, N), weight (N,), bias (N,) of the case's dtype, and eps."""
    dtype, device, rows, columns = getattr(torch, case["dtype"]), generator.device, case["M"], case["N"]
    x = torch.randn(rows, columns, generator=generator, device=device) + 0.5
    weight = torch.randn(columns, generator=generator, device=device)
    bias = torch.randn(columns, generator=generator, device=device)
    return {"x": x.to(dtype), "weight": weight.to(dtype), "bias": bias.to(dtype), "eps": EPS}


def reference(x, weight, bias, eps):
    """out (M, N), of x's dtype."""
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


def work(case):
    """x, weight and bias read once, out written once."""
    return Work(bytes=4 * case["M"] * case["N"], flops=8 * case["M"] * case["N"], dtype="float32")
