"""The sum of each row of whole numbers, in int32."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """x (M, N) of the case's dtype."""
    x = torch.randint(-128, 128, (case["M"], case["N"]), generator=generator, device=generator.device)
    return {"x": x.to(getattr(torch, case["dtype"]))}


def reference(x):
    """sums (M,) int32."""
    return x.to(torch.int64).sum(dim=-1).to(torch.int32)


def work(case):
    """x read once, the sums written once."""
    elements = case["M"] * case["N"]
    return Work(bytes=elements * getattr(torch, case["dtype"]).itemsize, flops=elements, dtype="float32")
