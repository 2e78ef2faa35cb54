"""Convolution along time without padding: out[t] = sum over taps k of x[t + k] @ w[k]."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    device, t, c, o, k = generator.device, case["T"], case["C"], case["O"], case["taps"]
    x = torch.randn(t + k - 1, c, generator=generator, device=device, dtype=torch.bfloat16)
    w = torch.randn(k, c, o, generator=generator, device=device, dtype=torch.bfloat16) * (c * k) ** -0.5
    return {"x": x, "w": w}


def reference(x, w):
    taps = w.shape[0]
    time = x.shape[0] - taps + 1
    wide = torch.cat([x[k : k + time] for k in range(taps)], dim=1)
    return wide @ w.reshape(-1, w.shape[2])


def work(case):
    t, c, o, k = case["T"], case["C"], case["O"], case["taps"]
    return Work(bytes=((t + k - 1) * c + k * c * o + t * o) * 2, flops=2 * t * k * c * o, dtype="bfloat16")
