"""An entry point that is an object with a call method.

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


class Scale:
    def __init__(self, tile):
        self.tile = tile
        self.calls = 0

    def __call__(self, x, factor):
        self.calls += 1
        out = torch.empty_like(x)
        grid = (ct.cdiv(x.shape[0], self.tile),)
        ct.launch(torch.cuda.current_stream(), grid, scale_kernel, (x, out, factor, self.tile))
        return out


scale = Scale(1024)
