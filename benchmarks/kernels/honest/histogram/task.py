"""How often each key occurs."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """keys (N,) of the case's dtype, below `bins`, and bins."""
    keys = torch.randint(0, case["bins"], (case["N"],), generator=generator, device=generator.device)
    return {"keys": keys.to(getattr(torch, case["dtype"])), "bins": case["bins"]}


def reference(keys, bins):
    """counts (bins,) int32."""
    return torch.bincount(keys.long(), minlength=bins).to(torch.int32)


def work(case):
    """keys read once, counts written once."""
    return Work(bytes=4 * (case["N"] + case["bins"]), flops=case["N"], dtype="float32")
