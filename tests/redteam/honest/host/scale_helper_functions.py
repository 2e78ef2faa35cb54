"""A kernel that calls functions of its own, with arithmetic in two steps.

task: scale
backend: both
"""

import cuda.tile as ct
import torch

TILE = 1024


def _times(values, factor):
    return values * factor


@ct.function
def _read(x, block, T: ct.Constant[int]):
    return ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)


@ct.kernel
def scale_kernel(x, out, factor, T: ct.Constant[int]):
    block = ct.bid(0)
    ct.store(out, index=(block,), tile=_times(_read(x, block, T), factor))


def scale(x, factor):
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), scale_kernel, (x, out, factor, TILE))
    return out
