"""Grouped matrix product: the rows of each group times that group's weights, accumulated in float32."""

import torch

from tilewright.task import Work


def group_starts(case):
    """Where each group begins among T rows, and T; the last group is about three times the first."""
    shares = [case["G"] + 2 * group for group in range(case["G"])]
    return [case["T"] * sum(shares[:group]) // sum(shares) for group in range(case["G"] + 1)]


def make_inputs(case, generator):
    """x (T, K), weights (G, K, N) of the case's dtype, and starts (G + 1,), on the generator's device."""
    dtype, device = getattr(torch, case["dtype"]), generator.device
    x = torch.randn(case["T"], case["K"], generator=generator, device=device, dtype=dtype)
    weights = torch.randn(case["G"], case["K"], case["N"], generator=generator, device=device, dtype=dtype)
    return {"x": x, "weights": weights, "starts": torch.tensor(group_starts(case), dtype=torch.int32, device=device)}


def reference(x, weights, starts):
    """out (T, N), of x's dtype."""
    cuts = starts.tolist()
    return torch.cat([x[low:high] @ one for low, high, one in zip(cuts, cuts[1:], weights, strict=False)])


def work(case):
    """x, the weights and starts read once, out written once; a multiply-add is two flops."""
    t, g, n, k = case["T"], case["G"], case["N"], case["K"]
    size = getattr(torch, case["dtype"]).itemsize
    return Work(bytes=(t * k + g * k * n + t * n) * size + 4 * (g + 1), flops=2 * t * n * k, dtype=case["dtype"])
