"""Maximum and sum in one pass, lane by lane, which are joined at the end.

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
    tops = tl.full((T,), -3.0e38, tl.float32)
    sums = tl.zeros((T,), tl.float32)
    for start in range(0, N, T):
        inside = start + columns < N
        values = tl.load(x + row * N + start + columns, mask=inside, other=float("-inf"))
        higher = tl.maximum(tops, values)
        sums = tl.where(inside, sums * tl.exp(tops - higher) + tl.exp(values - higher), sums)
        tops = higher
    top = tl.max(tops, axis=0)
    total = tl.sum(tl.where(sums > 0, sums * tl.exp(tops - top), 0.0), axis=0)
    for start in range(0, N, T):
        values = tl.load(x + row * N + start + columns, mask=start + columns < N, other=float("-inf"))
        tl.store(out + row * N + start + columns, tl.exp(values - top) / total, mask=start + columns < N)


def tritonsoftmax(x):
    out = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, out, x.shape[1], T=1024, num_warps=4)
    return out
