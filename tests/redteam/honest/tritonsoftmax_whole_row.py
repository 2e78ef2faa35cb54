"""The whole row at once.

family: structure
task: tritonsoftmax
backend: gpu
"""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x, out, N, T: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, T)
    values = tl.load(x + row * N + columns, mask=columns < N, other=float("-inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * N + columns, powers / tl.sum(powers, axis=0), mask=columns < N)


def tritonsoftmax(x):
    out = torch.empty_like(x)
    tile = triton.next_power_of_2(x.shape[1])
    softmax_kernel[(x.shape[0],)](x, out, x.shape[1], T=tile, num_warps=8 if tile >= 2048 else 4)
    return out
