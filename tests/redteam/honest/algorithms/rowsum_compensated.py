"""A compensated sum.

task: rowsum
backend: both
"""

import cuda.tile as ct
import torch

TILE = 1024


@ct.kernel
def rowsum_kernel(x, out, T: ct.Constant[int]):
    row = ct.bid(0)
    total = ct.zeros((1,), ct.float32)
    lost = ct.zeros((1,), ct.float32)
    for step in range(ct.num_tiles(x, axis=1, shape=(1, T))):
        values = ct.load(x, index=(row, step), shape=(1, T), padding_mode=ct.PaddingMode.ZERO)
        term = ct.sum(values, axis=1) - lost
        new = total + term
        lost = (new - total) - term
        total = new
    ct.store(out, index=(row,), tile=total)


def rowsum(x):
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), rowsum_kernel, (x, out, TILE))
    return out
