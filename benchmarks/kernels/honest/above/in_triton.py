"""A comparison in Triton: one program for each 256 elements."""

import torch
import triton
import triton.language as tl

TILE = 256


@triton.jit
def above_kernel(x, y, out, N, limit, T: tl.constexpr):
    places = tl.program_id(0) * T + tl.arange(0, T)
    inside = places < N
    left = tl.load(x + places, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(y + places, mask=inside, other=0.0).to(tl.float32)
    higher = left > right
    near = left < right + limit
    tl.store(out + places, higher & near, mask=inside)


def above(x, y, limit):
    size = x.shape[0]
    out = torch.empty(size, dtype=torch.bool, device=x.device)
    grid = (triton.cdiv(size, TILE),)
    above_kernel[grid](x, y, out, size, limit, T=TILE)
    return out
