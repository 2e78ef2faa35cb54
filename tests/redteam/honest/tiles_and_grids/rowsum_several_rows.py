"""Four rows in each block.

task: rowsum
backend: both
"""

import cuda.tile as ct
import torch

ROWS, TILE = 4, 512


@ct.kernel
def rowsum_kernel(x, out, R: ct.Constant[int], T: ct.Constant[int]):
    block = ct.bid(0)
    total = ct.zeros((R,), ct.float32)
    for step in range(ct.num_tiles(x, axis=1, shape=(R, T))):
        total += ct.sum(ct.load(x, index=(block, step), shape=(R, T), padding_mode=ct.PaddingMode.ZERO), axis=1)
    ct.store(out, index=(block,), tile=total)


def rowsum(x):
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], ROWS),), rowsum_kernel, (x, out, ROWS, TILE))
    return out
