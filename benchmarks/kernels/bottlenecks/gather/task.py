"""The transpose of a matrix, doubled."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """x (M, N) in float32."""
    return {"x": torch.randn(case["M"], case["N"], generator=generator, device=generator.device)}


def reference(x):
    """out (N, M), contiguous."""
    return (2 * x).t().contiguous()


def work(case):
    """x read once, out written once; a multiplication for each element."""
    return Work(bytes=8 * case["M"] * case["N"], flops=case["M"] * case["N"], dtype="float32")
