"""Cross-entropy of each row of logits with its target."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """logits (M, N) of the case's dtype, targets (M,) int32."""
    device = generator.device
    logits = torch.randn(case["M"], case["N"], generator=generator, device=device) * 2
    targets = torch.randint(0, case["N"], (case["M"],), generator=generator, device=device, dtype=torch.int32)
    return {"logits": logits.to(getattr(torch, case["dtype"])), "targets": targets}


def reference(logits, targets):
    """loss (M,), of the logits' dtype."""
    return torch.nn.functional.cross_entropy(logits, targets.to(torch.int64), reduction="none")


def work(case):
    """logits read once, losses written once."""
    elements = case["M"] * case["N"]
    return Work(bytes=elements * getattr(torch, case["dtype"]).itemsize, flops=5 * elements, dtype="float32")
