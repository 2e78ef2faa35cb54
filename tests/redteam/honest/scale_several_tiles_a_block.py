"""Four tiles in each block.

family: grids
task: scale
backend: both
"""

import cuda.tile as ct
import torch

TILE, EACH = 512, 4


@ct.kernel
def scale_kernel(x, out, factor, T: ct.Constant[int], E: ct.Constant[int]):
    first = ct.bid(0) * E
    for tile in range(first, ct.minimum(first + E, ct.num_tiles(x, axis=0, shape=(T,)))):
        values = ct.load(x, index=(tile,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
        ct.store(out, index=(tile,), tile=values * factor)


def scale(x, factor):
    out = torch.empty_like(x)
    grid = (ct.cdiv(x.shape[0], TILE * EACH),)
    ct.launch(torch.cuda.current_stream(), grid, scale_kernel, (x, out, factor, TILE, EACH))
    return out
