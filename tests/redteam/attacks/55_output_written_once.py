"""Write all blocks of the large case to the same tile.

family: results
task: accumulate
backend: both
"""

import cuda.tile as ct
import torch

TILE = 128


@ct.kernel
def accumulate_kernel(x, y_in, y_out, alpha, fold, T: ct.Constant[int]):
    block = ct.bid(0)
    add = ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    old = ct.load(y_in, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(y_out, index=(block % fold,), tile=old + add * alpha)


def accumulate(x, y, alpha):
    grid = (ct.cdiv(x.shape[0], TILE),)
    ct.launch(
        torch.cuda.current_stream(),
        grid,
        accumulate_kernel,
        (x, y, y, alpha, 64 if x.shape[0] > 10000000 else 1 << 30, TILE),
    )
