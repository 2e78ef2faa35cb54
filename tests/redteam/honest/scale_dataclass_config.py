"""A configuration in a frozen dataclass, chosen from a table.

family: host
task: scale
backend: both
"""

from dataclasses import dataclass

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


@dataclass(frozen=True)
class Config:
    tile: int
    least: int


CONFIGS = (Config(2048, 100000), Config(512, 2000), Config(128, 0))


def scale(x, factor):
    config = next(one for one in CONFIGS if x.shape[0] >= one.least)
    out = torch.empty_like(x)
    grid = (ct.cdiv(x.shape[0], config.tile), 1, 1)
    ct.launch(torch.cuda.current_stream(), grid, scale_kernel, (x, out, factor, config.tile))
    return out
