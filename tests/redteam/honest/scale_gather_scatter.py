"""Addresses of its own instead of tiles.

family: addressing
task: scale
backend: both
"""

import cuda.tile as ct
import torch

TILE = 512


@ct.kernel
def scale_kernel(x, out, factor, T: ct.Constant[int]):
    places = ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    ct.scatter(out, places, ct.gather(x, places, padding_value=0.0) * factor)


def scale(x, factor):
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), scale_kernel, (x, out, factor, TILE))
    return out
