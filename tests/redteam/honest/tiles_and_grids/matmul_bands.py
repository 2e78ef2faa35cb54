"""Tiles in bands of eight rows, for the sake of L2.

task: matmul
backend: both
"""

import cuda.tile as ct
import torch

TM, TN, TK, BAND = 64, 64, 64, 8


@ct.kernel
def matmul_kernel(a, b, out, M: ct.Constant[int], N: ct.Constant[int], K: ct.Constant[int], G: ct.Constant[int]):
    rows, columns = ct.cdiv(out.shape[0], M), ct.cdiv(out.shape[1], N)
    band, inside = ct.bid(0) // (G * columns), ct.bid(0) % (G * columns)
    height = ct.minimum(rows - band * G, G)
    row, column = band * G + inside % height, inside // height
    total = ct.zeros((M, N), ct.float32)
    for step in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, index=(row, step), shape=(M, K), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, index=(step, column), shape=(K, N), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(left, right, total)
    ct.store(out, index=(row, column), tile=total.astype(out.dtype))


def matmul(a, b):
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    blocks = ct.cdiv(out.shape[0], TM) * ct.cdiv(out.shape[1], TN)
    ct.launch(torch.cuda.current_stream(), (blocks,), matmul_kernel, (a, b, out, TM, TN, TK, BAND))
    return out
