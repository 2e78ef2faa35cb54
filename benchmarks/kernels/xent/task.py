"""Cross-entropy of each row of logits with its target, label smoothing included."""

import torch

from tilewright.task import Work

SMOOTHING = 0.1


def make_inputs(case, generator):
    """logits (M, N) of the case's dtype, targets (M,) int32, and smoothing."""
    dtype, device = getattr(torch, case["dtype"]), generator.device
    logits = torch.randn(case["M"], case["N"], generator=generator, device=device, dtype=dtype) * 2
    targets = torch.randint(0, case["N"], (case["M"],), generator=generator, device=device, dtype=torch.int32)
    return {"logits": logits, "targets": targets, "smoothing": SMOOTHING}


def reference(logits, targets, smoothing):
    """loss (M,), of the logits' dtype."""
    return torch.nn.functional.cross_entropy(
        logits, targets.to(torch.int64), reduction="none", label_smoothing=smoothing
    )


def work(case):
    """logits read once, losses written once."""
    return Work(bytes=4 * case["M"] * (case["N"] + 2), flops=5 * case["M"] * case["N"], dtype="float32")
