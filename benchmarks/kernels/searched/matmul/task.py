"""Matrix product: out = a @ b, accumulated in float32."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """a (M, K) and b (K, N) of the case's dtype, on the generator's device."""
    dtype = getattr(torch, case["dtype"])
    a = torch.randn(case["M"], case["K"], generator=generator, device=generator.device, dtype=dtype)
    b = torch.randn(case["K"], case["N"], generator=generator, device=generator.device, dtype=dtype)
    return {"a": a, "b": b}


def reference(a, b):
    """out (M, N), of a's dtype."""
    return a @ b


def work(case):
    """a and b read once, out written once; a multiply-add is two flops."""
    m, n, k = case["M"], case["N"], case["K"]
    size = getattr(torch, case["dtype"]).itemsize
    return Work(bytes=(m * k + k * n + m * n) * size, flops=2 * m * n * k, dtype=case["dtype"])
