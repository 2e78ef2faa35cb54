"""The sum of the values of each key."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """values (N,) of the case's dtype, keys (N,) int32 below C, and C."""
    n, count, device = case["N"], case["C"], generator.device
    values = torch.rand(n, generator=generator, device=device, dtype=getattr(torch, case["dtype"]))
    keys = torch.randint(count, (n,), generator=generator, device=device, dtype=torch.int32)
    return {"values": values, "keys": keys, "count": count}


def reference(values, keys, count):
    """out (C,) of the values' dtype."""
    out = torch.zeros(count, dtype=values.dtype, device=values.device)
    return out.index_add_(0, keys.long(), values)


def work(case):
    """values and keys read once; one addition for each."""
    return Work(bytes=8 * case["N"], flops=case["N"], dtype="float32")
