"""Cross entropy of each row, and its gradient by the logits."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """logits (M, V) of the case's dtype, target (M,) int32 below V."""
    dtype, device = getattr(torch, case["dtype"]), generator.device
    logits = (3 * torch.randn(case["M"], case["V"], generator=generator, device=device)).to(dtype)
    target = torch.randint(case["V"], (case["M"],), generator=generator, device=device, dtype=torch.int32)
    return {"logits": logits, "target": target}


def reference(logits, target):
    """loss (M,) float32 and dlogits (M, V) of the logits' dtype."""
    logs = torch.log_softmax(logits, dim=1)
    chosen = target.long()[:, None]
    grad = logs.exp()
    grad = grad.scatter_add(1, chosen, torch.full_like(chosen, -1, dtype=grad.dtype))
    return -logs.gather(1, chosen)[:, 0].float(), grad


def work(case):
    """logits read once, dlogits written once."""
    return Work(bytes=4 * case["M"] * case["V"], flops=6 * case["M"] * case["V"], dtype="float32")
