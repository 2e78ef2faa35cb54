"""Larger tiles.

task: matmul
backend: both
with: TILE = 64, 128
"""

import cuda.tile as ct
import torch

TILE = 64
TM, TN, TK = TILE, TILE, 64


@ct.kernel
def matmul_kernel(a, b, out, M: ct.Constant[int], N: ct.Constant[int], K: ct.Constant[int]):
    row, column = ct.bid(0), ct.bid(1)
    total = ct.zeros((M, N), ct.float32)
    for step in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, index=(row, step), shape=(M, K), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, index=(step, column), shape=(K, N), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(left, right, total)
    ct.store(out, index=(row, column), tile=total.astype(out.dtype))


def matmul(a, b):
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    grid = (ct.cdiv(out.shape[0], TM), ct.cdiv(out.shape[1], TN))
    ct.launch(torch.cuda.current_stream(), grid, matmul_kernel, (a, b, out, TM, TN, TK))
    return out
