"""Causal attention forward in a sliding window, with fewer heads of keys than of queries."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """q (B, H, S, D), k and v (B, G, S, D) of the case's dtype, the window W: a query sees itself and W - 1 before."""
    dtype, device = getattr(torch, case["dtype"]), generator.device
    shapes = {"q": case["H"], "k": case["G"], "v": case["G"]}
    found = {
        name: torch.randn((case["B"], heads, case["S"], case["D"]), generator=generator, device=device).to(dtype)
        for name, heads in shapes.items()
    }
    return found | {"window": case["W"]}


def reference(q, k, v, window):
    """out (B, H, S, D), of q's dtype; one batch at a time, since the scores take much memory."""
    each = q.shape[1] // k.shape[1]
    place = torch.arange(q.shape[2], device=q.device)
    far = place[:, None] - place[None, :]
    hidden = (far < 0) | (far >= window)
    parts = []
    for a, b, c in zip(q, k.repeat_interleave(each, 1), v.repeat_interleave(each, 1), strict=True):
        scores = (a @ b.transpose(-1, -2) * q.shape[-1] ** -0.5).masked_fill(hidden, float("-inf"))
        parts.append(torch.softmax(scores, dim=-1) @ c)
    return torch.stack(parts)


def work(case):
    """Every tensor read or written once; two products of what the window shows."""
    b, h, g, s, d = (case[name] for name in "BHGSD")
    w = min(case["W"], s)
    seen = s * w - w * (w - 1) // 2
    return Work(bytes=(2 * h + 2 * g) * b * s * d * 2, flops=4 * b * h * seen * d, dtype=case["dtype"])
