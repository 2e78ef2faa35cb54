"""Product of a few bfloat16 rows with weights of 4 bits, which have a scale for every 128 of K."""

import torch

from tilewright.task import Work

GROUP = 128


def make_inputs(case, generator):
    """x (M, K) of the case's dtype, packed (K / 2, N) uint8, scale (K / 128, N) of the case's dtype.

    Byte (k, n) of `packed` holds the weight (k, n) in its low four bits and the weight (k + K / 2, n) in its high ones.
    """
    m, n, k = case["M"], case["N"], case["K"]
    dtype, device = getattr(torch, case["dtype"]), generator.device
    x = torch.randn(m, k, generator=generator, device=device).to(dtype)
    packed = torch.randint(256, (k // 2, n), generator=generator, device=device, dtype=torch.int32).to(torch.uint8)
    scale = (0.01 + 0.02 * torch.rand(k // GROUP, n, generator=generator, device=device)).to(dtype)
    return {"x": x, "packed": packed, "scale": scale}


def reference(x, packed, scale):
    """out (M, N) of x's dtype: x times (weight - 8) * scale."""
    codes = torch.cat([packed & 15, packed >> 4]).to(x.dtype) - 8
    return x @ (codes * scale.repeat_interleave(GROUP, 0).to(x.dtype))


def work(case):
    """The weights and their scales read once; the rest is small."""
    m, n, k = case["M"], case["N"], case["K"]
    return Work(bytes=n * k // 2 + n * k // GROUP * 2 + 2 * m * (n + k), flops=2 * m * n * k, dtype=case["dtype"])
