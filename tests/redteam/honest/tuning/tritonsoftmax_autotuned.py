"""Triton's own search over tiles and warps in the first call with a length.

task: tritonsoftmax
backend: gpu
"""

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"T": tile}, num_warps=warps) for tile in (512, 1024, 2048) for warps in (4, 8)], key=["N"]
)
@triton.jit
def softmax_kernel(x, out, N, T: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, T)
    tops = tl.full((T,), float("-inf"), tl.float32)
    for start in range(0, N, T):
        values = tl.load(x + row * N + start + columns, mask=start + columns < N, other=float("-inf"))
        tops = tl.maximum(tops, values)
    top = tl.max(tops, axis=0)
    sums = tl.zeros((T,), tl.float32)
    for start in range(0, N, T):
        values = tl.load(x + row * N + start + columns, mask=start + columns < N, other=float("-inf"))
        sums += tl.exp(values - top)
    total = tl.sum(sums, axis=0)
    for start in range(0, N, T):
        values = tl.load(x + row * N + start + columns, mask=start + columns < N, other=float("-inf"))
        tl.store(out + row * N + start + columns, tl.exp(values - top) / total, mask=start + columns < N)


def tritonsoftmax(x):
    out = torch.empty_like(x)
    softmax_kernel[lambda meta: (x.shape[0],)](x, out, x.shape[1])
    return out
