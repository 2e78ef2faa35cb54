"""RMSNorm over the rows of a matrix, without a weight."""

import torch

from tilewright.task import Work

EPS = 1e-6


def make_inputs(case, generator):
    """x (M, N) in bfloat16."""
    x = torch.randn(case["M"], case["N"], generator=generator, device=generator.device, dtype=torch.float32)
    return {"x": x.to(torch.bfloat16)}


def reference(x):
    """out (M, N), of x's dtype."""
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + EPS)


def work(case):
    """x read once, out written once; square, add and one multiplication for each element."""
    return Work(bytes=4 * case["M"] * case["N"], flops=3 * case["M"] * case["N"], dtype="float32")
