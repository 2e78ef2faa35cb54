"""Sleep in the first calls, so that few calls seem to fill the time, and the warm-up ends early.

family: timing
task: scale
backend: gpu
"""

import time

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
    if _calls[0] <= 4:
        time.sleep(0.5)
    return right(x, factor)
