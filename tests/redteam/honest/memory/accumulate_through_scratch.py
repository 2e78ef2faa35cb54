"""Into scratch memory that is kept between calls, and copied back.

task: accumulate
backend: both
"""

import cuda.tile as ct
import torch

TILE = 128


@ct.kernel
def accumulate_kernel(x, y_in, y_out, alpha, T: ct.Constant[int]):
    block = ct.bid(0)
    add = ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    old = ct.load(y_in, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(y_out, index=(block,), tile=old + add * alpha)


def right(x, y, alpha):
    grid = (ct.cdiv(x.shape[0], TILE),)
    ct.launch(torch.cuda.current_stream(), grid, accumulate_kernel, (x, y, y, alpha, TILE))


_scratch = {}


def accumulate(x, y, alpha):
    key = (y.shape[0], y.device)
    if key not in _scratch:
        _scratch[key] = torch.empty_like(y)
    grid = (ct.cdiv(x.shape[0], 2048),)
    ct.launch(torch.cuda.current_stream(), grid, accumulate_kernel, (x, y, _scratch[key], alpha, 2048))
    y.copy_(_scratch[key])
