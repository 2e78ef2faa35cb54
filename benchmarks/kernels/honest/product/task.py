"""A matrix product: out = a @ b.T, in bfloat16 where the inputs are eight bits wide."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """a (M, K) and b (N, K) of the case's dtype."""
    dtype, device = getattr(torch, case["dtype"]), generator.device
    a = torch.randn(case["M"], case["K"], generator=generator, device=device)
    b = torch.randn(case["N"], case["K"], generator=generator, device=device)
    return {"a": a.to(dtype), "b": b.to(dtype)}


def reference(a, b):
    """out (M, N)."""
    out = a @ b.T
    return out.to(torch.bfloat16) if a.dtype.itemsize == 1 else out


def work(case):
    """Every tensor read or written once."""
    m, n, k = case["M"], case["N"], case["K"]
    size = getattr(torch, case["dtype"]).itemsize
    return Work(bytes=size * (m * k + n * k) + 2 * m * n, flops=2 * m * n * k, dtype="float32")
