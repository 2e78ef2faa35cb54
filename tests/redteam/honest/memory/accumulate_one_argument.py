"""One array argument that is read and written.

task: accumulate
backend: both
"""

import cuda.tile as ct
import torch

TILE = 1024


@ct.kernel
def accumulate_kernel(x, y, alpha, T: ct.Constant[int]):
    block = ct.bid(0)
    add = ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    old = ct.load(y, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(y, index=(block,), tile=old + add * alpha)


def accumulate(x, y, alpha):
    grid = (ct.cdiv(x.shape[0], TILE),)
    ct.launch(torch.cuda.current_stream(), grid, accumulate_kernel, (x, y, alpha, TILE))
