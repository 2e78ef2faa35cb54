"""out = relu(x @ w + bias)^2, accumulated in float32."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    device, m, n, k = generator.device, case["M"], case["N"], case["K"]
    x = torch.randn(m, k, generator=generator, device=device, dtype=torch.bfloat16)
    w = torch.randn(k, n, generator=generator, device=device, dtype=torch.bfloat16) * k**-0.5
    bias = torch.randn(n, generator=generator, device=device, dtype=torch.bfloat16)
    return {"x": x, "w": w, "bias": bias}


def reference(x, w, bias):
    return torch.relu(x @ w + bias).square()


def work(case):
    m, n, k = case["M"], case["N"], case["K"]
    return Work(bytes=(m * k + k * n + n + m * n) * 2, flops=2 * m * n * k + 3 * m * n, dtype="bfloat16")
