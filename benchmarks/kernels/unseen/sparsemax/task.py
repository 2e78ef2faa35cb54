"""Sparsemax: the Euclidean projection of each row onto the probability simplex (Martins and Astudillo, 2016)."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    x = torch.randn(case["rows"], case["N"], generator=generator, device=generator.device, dtype=torch.float32)
    return {"x": x}


def reference(x):
    z, _ = x.sort(dim=1, descending=True)
    k = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)
    sums = z.cumsum(dim=1) - 1
    size = (k * z > sums).sum(dim=1, keepdim=True)
    tau = sums.gather(1, size - 1) / size
    return (x - tau).clamp(min=0)


def work(case):
    elements = case["rows"] * case["N"]
    return Work(bytes=2 * elements * 4, flops=3 * 24 * elements, dtype="float32")
