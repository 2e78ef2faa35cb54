"""Right in the first calls of a process, and nothing afterwards.

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


_calls = [0]


def scale(x, factor):
    _calls[0] += 1
    return right(x, factor) if _calls[0] <= 8 else torch.zeros_like(x[:1]).expand(x.shape[0])
