"""Larger tiles.

task: gram
backend: both
with: TILE = 32, 64
"""

import cuda.tile as ct
import torch

TILE = 32
TM, TK = TILE, 16


@ct.kernel
def gram_kernel(x, out, M: ct.Constant[int], K: ct.Constant[int]):
    row, column = ct.bid(0), ct.bid(1)
    total = ct.zeros((M, M), ct.float32)
    for step in range(ct.num_tiles(x, axis=1, shape=(M, K))):
        left = ct.load(x, index=(row, step), shape=(M, K), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(x, index=(step, column), shape=(K, M), order="F", padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(left, right, total)
    ct.store(out, index=(row, column), tile=total)


def gram(x):
    out = torch.empty(x.shape[0], x.shape[0], dtype=x.dtype, device=x.device)
    side = ct.cdiv(x.shape[0], TM)
    ct.launch(torch.cuda.current_stream(), (side, side), gram_kernel, (x, out, TM, TK))
    return out
