"""The tile and whether the row fits it by heuristics; two paths in one kernel.

task: tritonsoftmax
backend: gpu
"""

import torch
import triton
import triton.language as tl


@triton.heuristics(
    {
        "T": lambda given: min(triton.next_power_of_2(given["N"]), 4096),
        "FITS": lambda given: given["N"] <= 4096,
        "num_warps": lambda given: 4 if given["N"] <= 1024 else 8,
    }
)
@triton.jit
def softmax_kernel(x, out, N, T: tl.constexpr, FITS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, T)
    if FITS:
        values = tl.load(x + row * N + columns, mask=columns < N, other=float("-inf"))
        powers = tl.exp(values - tl.max(values, axis=0))
        tl.store(out + row * N + columns, powers / tl.sum(powers, axis=0), mask=columns < N)
    else:
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
    softmax_kernel[(x.shape[0],)](x, out, x.shape[1])
    return out
