"""K split in four parts, whose products a second launch adds up, without atomics.

task: matmul
backend: both
"""

import cuda.tile as ct
import torch

TM, TN, TK, PARTS = 64, 64, 32, 4


@ct.kernel
def part_kernel(a, b, parts, M: ct.Constant[int], N: ct.Constant[int], K: ct.Constant[int]):
    row, column, part = ct.bid(0), ct.bid(1), ct.bid(2)
    total = ct.zeros((M, N), ct.float32)
    for step in range(part, ct.num_tiles(a, axis=1, shape=(M, K)), ct.num_blocks(2)):
        left = ct.load(a, index=(row, step), shape=(M, K), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, index=(step, column), shape=(K, N), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(left, right, total)
    ct.store(parts, index=(part, row, column), tile=total.reshape((1, M, N)))


@ct.kernel
def sum_kernel(parts, out, M: ct.Constant[int], N: ct.Constant[int], P: ct.Constant[int]):
    row, column = ct.bid(0), ct.bid(1)
    values = ct.load(parts, index=(0, row, column), shape=(P, M, N), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(row, column), tile=ct.sum(values, axis=0).astype(out.dtype))


def matmul(a, b):
    m, n, stream = a.shape[0], b.shape[1], torch.cuda.current_stream()
    out = torch.empty(m, n, dtype=a.dtype, device=a.device)
    parts = torch.empty(PARTS, m, n, dtype=torch.float32, device=a.device)
    ct.launch(stream, (ct.cdiv(m, TM), ct.cdiv(n, TN), PARTS), part_kernel, (a, b, parts, TM, TN, TK))
    ct.launch(stream, (ct.cdiv(m, 32), ct.cdiv(n, 32)), sum_kernel, (parts, out, 32, 32, PARTS))
    return out
