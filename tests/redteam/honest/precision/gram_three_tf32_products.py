"""Three TF32 products of split operands, as exact as float32, each tile's added to the total outside the tensor cores.

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
        lh, rh = left.astype(ct.tfloat32), right.astype(ct.tfloat32)
        ll = (left - lh.astype(ct.float32)).astype(ct.tfloat32)
        rl = (right - rh.astype(ct.float32)).astype(ct.tfloat32)
        part = ct.mma(ll, rh, ct.zeros((M, M), ct.float32))
        part = ct.mma(lh, rl, part)
        total += ct.mma(lh, rh, part)
    ct.store(out, index=(row, column), tile=total)


def gram(x):
    out = torch.empty(x.shape[0], x.shape[0], dtype=x.dtype, device=x.device)
    side = ct.cdiv(x.shape[0], TM)
    ct.launch(torch.cuda.current_stream(), (side, side), gram_kernel, (x, out, TM, TK))
    return out
