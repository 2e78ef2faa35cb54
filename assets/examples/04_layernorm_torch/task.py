"""Layer normalisation of rows: out[m, n] = (x[m, n] - mean_m) / sqrt(variance_m + eps) * weight[n] + bias[n]."""

import torch

from tilewright.task import Work

EPS = 1e-5


def make_inputs(case, generator):
    """x (M, N), weight and bias (N,), all of the case's dtype, and eps, on the generator's device."""
    options = {"generator": generator, "device": generator.device, "dtype": getattr(torch, case["dtype"])}
    x = torch.randn(case["M"], case["N"], **options)
    return {"x": x, "weight": torch.randn(case["N"], **options), "bias": torch.randn(case["N"], **options), "eps": EPS}


def reference(x, weight, bias, eps):
    """out (M, N), of x's dtype; the variance is that of the row as it is, divided by N."""
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(dim=-1, keepdim=True) + eps) * weight + bias


def work(case):
    """x, weight and bias read once, out written once; seven flops for each element."""
    size = getattr(torch, case["dtype"]).itemsize
    elements = case["M"] * case["N"]
    return Work(bytes=(2 * elements + 2 * case["N"]) * size, flops=7 * elements, dtype="float32")
