"""A product with a contiguous transposed copy.

family: memory
task: gram
backend: both
"""

import cuda.tile as ct
import torch

TM, TK = 32, 32


@ct.kernel
def product_kernel(a, b, out, M: ct.Constant[int], K: ct.Constant[int]):
    row, column = ct.bid(0), ct.bid(1)
    total = ct.zeros((M, M), ct.float32)
    for step in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, index=(row, step), shape=(M, K), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, index=(step, column), shape=(K, M), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(left, right, total)
    ct.store(out, index=(row, column), tile=total)


def gram(x):
    turned = x.t().contiguous()
    out = torch.empty(x.shape[0], x.shape[0], dtype=x.dtype, device=x.device)
    side = ct.cdiv(x.shape[0], TM)
    ct.launch(torch.cuda.current_stream(), (side, side), product_kernel, (x, turned, out, TM, TK))
    return out
