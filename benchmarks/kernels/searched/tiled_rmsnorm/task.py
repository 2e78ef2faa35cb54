"""RMSNorm over the rows of a matrix: out[m, n] = x[m, n] / sqrt(mean_n(x[m, n]^2) + eps) * weight[n]."""

import torch

from tilewright.task import Work

EPS = 1e-6


def make_inputs(case, generator):
    """x (M, N), weight (N,), both of the case's dtype, and eps, on the generator's device."""
    dtype = getattr(torch, case["dtype"])
    x = torch.randn(case["M"], case["N"], generator=generator, device=generator.device, dtype=dtype)
    weight = torch.randn(case["N"], generator=generator, device=generator.device, dtype=dtype)
    return {"x": x, "weight": weight, "eps": EPS}


def reference(x, weight, eps):
    """out (M, N), of x's dtype."""
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps) * weight


def work(case):
    """x and weight read once, out written once; square, add, and two multiplications for each element."""
    size = getattr(torch, case["dtype"]).itemsize
    elements = case["M"] * case["N"]
    return Work(bytes=(2 * elements + case["N"]) * size, flops=4 * elements, dtype="float32")
