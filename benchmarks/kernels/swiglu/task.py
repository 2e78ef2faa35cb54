"""A gated map of a packed matrix: out = silu(x[:, :N]) * x[:, N:]."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """x (M, 2 N) of the case's dtype."""
    dtype = getattr(torch, case["dtype"])
    return {"x": torch.randn(case["M"], 2 * case["N"], generator=generator, device=generator.device, dtype=dtype)}


def reference(x):
    """out (M, N), of x's dtype."""
    gate, up = x.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


def work(case):
    """x read once, out written once."""
    return Work(bytes=12 * case["M"] * case["N"], flops=5 * case["M"] * case["N"], dtype="float32")
