"""Attention over all keys: out = softmax(q @ k.T / sqrt(D)) @ v, head by head."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """q (H, S, D), k and v (H, L, D) of the case's dtype."""
    dtype, device = getattr(torch, case["dtype"]), generator.device

    def drawn(length):
        return torch.randn(case["H"], length, case["D"], generator=generator, device=device).to(dtype)

    return {"q": drawn(case["S"]), "k": drawn(case["L"]), "v": drawn(case["L"])}


def reference(q, k, v):
    """out (H, S, D), of q's dtype."""
    return torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, dim=-1) @ v


def work(case):
    """Every tensor read or written once; two products."""
    pairs = case["H"] * case["S"] * case["L"]
    size = getattr(torch, case["dtype"]).itemsize
    elements = 2 * case["H"] * case["D"] * (case["S"] + case["L"])
    return Work(bytes=size * elements, flops=4 * pairs * case["D"], dtype="float32")
