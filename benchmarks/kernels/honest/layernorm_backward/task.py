"""The backward pass of layer normalisation: the gradients of x, weight and bias."""

import torch

from tilewright.task import Work

EPS = 1e-5


def make_inputs(case, generator):
    """x and dout (M, N), weight (N,) of the case's dtype, and eps."""
    dtype, device = getattr(torch, case["dtype"]), generator.device
    x = torch.randn(case["M"], case["N"], generator=generator, device=device)
    dout = torch.randn(case["M"], case["N"], generator=generator, device=device)
    weight = 1 + 0.1 * torch.randn(case["N"], generator=generator, device=device)
    return {"x": x.to(dtype), "dout": dout.to(dtype), "weight": weight.to(dtype), "eps": EPS}


def reference(x, dout, weight, eps):
    """dx (M, N), dweight and dbias (N,)."""
    centred = x - x.mean(dim=-1, keepdim=True)
    scale = torch.rsqrt(centred.square().mean(dim=-1, keepdim=True) + eps)
    normal, weighted = centred * scale, dout * weight
    along = (weighted * normal).mean(dim=-1, keepdim=True)
    dx = scale * (weighted - weighted.mean(dim=-1, keepdim=True) - normal * along)
    return dx, (dout * normal).sum(dim=0), dout.sum(dim=0)


def work(case):
    """x and dout read once, dx written once."""
    elements = case["M"] * case["N"]
    return Work(bytes=3 * elements * getattr(torch, case["dtype"]).itemsize, flops=14 * elements, dtype="float32")
