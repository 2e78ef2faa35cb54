"""Other tiles, of which the smallest is slower than the incumbent.

task: scale
backend: both
with: TILE = 64, 256, 1024, 4096
"""

import cuda.tile as ct
import torch

TILE = 256


@ct.kernel
def scale_kernel(x, out, factor, T: ct.Constant[int]):
    block = ct.bid(0)
    values = ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(block,), tile=values * factor)


def scale(x, factor):
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), scale_kernel, (x, out, factor, TILE))
    return out
