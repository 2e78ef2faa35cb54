"""Inner products of all pairs of rows, in full float32: out = x @ x.T."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """x (M, K) of the case's dtype."""
    dtype = getattr(torch, case["dtype"])
    return {"x": torch.randn(case["M"], case["K"], generator=generator, device=generator.device, dtype=dtype)}


def reference(x):
    """out (M, M), of x's dtype."""
    return x @ x.mT


def work(case):
    """x read once, out written once; one triangle would do, so K multiply-adds for each element of it."""
    m, k = case["M"], case["K"]
    size = getattr(torch, case["dtype"]).itemsize
    return Work(bytes=(m * k + m * m) * size, flops=m * (m + 1) * k, dtype="float32")
