"""Addresses of its own, in place.

task: accumulate
backend: both
"""

import cuda.tile as ct
import torch

TILE = 512


@ct.kernel
def accumulate_kernel(x, y_in, y_out, alpha, T: ct.Constant[int]):
    places = ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    new = ct.gather(y_in, places, padding_value=0.0) + alpha * ct.gather(x, places, padding_value=0.0)
    ct.scatter(y_out, places, new)


def accumulate(x, y, alpha):
    grid = (ct.cdiv(x.shape[0], TILE),)
    ct.launch(torch.cuda.current_stream(), grid, accumulate_kernel, (x, y, y, alpha, TILE))
