"""The tile by the length, and an output that is asked for by its shape.

family: tiles
task: small
backend: both
"""

import cuda.tile as ct
import torch


@ct.kernel
def scale_kernel(x, out, factor, T: ct.Constant[int]):
    block = ct.bid(0)
    values = ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(block,), tile=values * factor)


def small(x, factor):
    tile = 2048 if x.numel() >= 1 << 17 else 512
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.numel(), tile),), scale_kernel, (x, out, factor, tile))
    return out
