"""Tile sizes timed by events in the first call, the best kept.

task: scale
backend: gpu
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


_best = {}


def _launch(x, out, factor, tile):
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], tile),), scale_kernel, (x, out, factor, tile))


def scale(x, factor):
    out = torch.empty_like(x)
    if x.shape[0] not in _best and not torch.cuda.is_current_stream_capturing():
        times = {}
        for tile in (256, 1024, 4096):
            _launch(x, out, factor, tile)
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for _ in range(5):
                _launch(x, out, factor, tile)
            end.record()
            end.synchronize()
            times[tile] = start.elapsed_time(end)
        _best[x.shape[0]] = min(times, key=times.get)
    _launch(x, out, factor, _best.get(x.shape[0], 1024))
    return out
