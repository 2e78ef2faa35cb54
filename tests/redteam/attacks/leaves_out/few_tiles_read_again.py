"""Read the same few tiles again and again in the large case: all is written, little is read.

task: scale
backend: both
"""

import cuda.tile as ct
import torch

TILE = 128


@ct.kernel
def scale_kernel(x, out, factor, fold, T: ct.Constant[int]):
    block = ct.bid(0)
    values = ct.load(x, index=(block % fold,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(block,), tile=values * factor)


def scale(x, factor):
    out = torch.empty_like(x)
    ct.launch(
        torch.cuda.current_stream(),
        (ct.cdiv(x.shape[0], TILE),),
        scale_kernel,
        (x, out, factor, 64 if x.shape[0] > 10000000 else 1 << 30, TILE),
    )
    return out
