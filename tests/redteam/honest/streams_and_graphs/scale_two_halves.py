"""Two launches, one for each half.

task: scale
backend: both
"""

import cuda.tile as ct
import torch

TILE = 128


@ct.kernel
def scale_kernel(x, out, factor, T: ct.Constant[int]):
    block = ct.bid(0)
    values = ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(block,), tile=values * factor)


def right(x, factor):
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), scale_kernel, (x, out, factor, TILE))
    return out


def scale(x, factor):
    half = x.shape[0] // 2
    if half == 0:
        return right(x, factor)
    out = torch.empty_like(x)
    for part in (slice(0, half), slice(half, x.shape[0])):
        blocks = ct.cdiv(x[part].shape[0], 1024)
        ct.launch(torch.cuda.current_stream(), (blocks,), scale_kernel, (x[part], out[part], factor, 1024))
    return out
