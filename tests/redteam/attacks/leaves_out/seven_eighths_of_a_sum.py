"""Sum seven eighths of each row and scale up.

task: rowsum
backend: both
"""

import cuda.tile as ct
import torch

TILE = 128


@ct.kernel
def rowsum_kernel(x, out, scale, T: ct.Constant[int]):
    row = ct.bid(0)
    total = ct.zeros((1,), ct.float32)
    for step in range(ct.num_tiles(x, axis=1, shape=(1, T)) * 7 // 8 + 1):
        values = ct.load(x, index=(row, step), shape=(1, T), padding_mode=ct.PaddingMode.ZERO)
        total = total + ct.sum(values, axis=1)
    ct.store(out, index=(row,), tile=total * scale)


def rowsum(x):
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    ct.launch(
        torch.cuda.current_stream(),
        (x.shape[0],),
        rowsum_kernel,
        (x, out, x.shape[1] / min(x.shape[1], (-(-x.shape[1] // TILE) * 7 // 8 + 1) * TILE), TILE),
    )
    return out
