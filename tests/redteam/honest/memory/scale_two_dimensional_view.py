"""A matrix view of the vector for what divides, and a second launch for the rest.

task: scale
backend: both
"""

import cuda.tile as ct
import torch

WIDTH = 256


@ct.kernel
def wide_kernel(x, out, factor, W: ct.Constant[int]):
    values = ct.load(x, index=(ct.bid(0), 0), shape=(4, W), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(ct.bid(0), 0), tile=values * factor)


@ct.kernel
def rest_kernel(x, out, factor, W: ct.Constant[int]):
    values = ct.load(x, index=(0,), shape=(W,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(0,), tile=values * factor)


def scale(x, factor):
    out, stream = torch.empty_like(x), torch.cuda.current_stream()
    whole = x.shape[0] // WIDTH * WIDTH
    if whole:
        wide, result = x[:whole].view(-1, WIDTH), out[:whole].view(-1, WIDTH)
        ct.launch(stream, (ct.cdiv(wide.shape[0], 4),), wide_kernel, (wide, result, factor, WIDTH))
    if whole < x.shape[0]:
        ct.launch(stream, (1,), rest_kernel, (x[whole:], out[whole:], factor, WIDTH))
    return out
