"""The library's own search in the first call.

task: scale
backend: gpu
"""

from types import SimpleNamespace

import cuda.tile as ct
import torch
from cuda.tile.tune import exhaustive_search

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


_best = {}


def scale(x, factor):
    out, stream = torch.empty_like(x), torch.cuda.current_stream()
    if x.shape[0] not in _best:
        found = exhaustive_search(
            [SimpleNamespace(tile=tile) for tile in (512, 1024, 2048)],
            stream,
            grid_fn=lambda config: (ct.cdiv(x.shape[0], config.tile),),
            kernel=scale_kernel,
            args_fn=lambda config: (x, out, factor, config.tile),
            hints_fn=lambda config: {},
            quiet=True,
        )
        _best[x.shape[0]] = found.best.config.tile
    tile = _best[x.shape[0]]
    ct.launch(stream, (ct.cdiv(x.shape[0], tile),), scale_kernel, (x, out, factor, tile))
    return out
