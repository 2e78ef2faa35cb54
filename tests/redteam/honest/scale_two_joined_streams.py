"""Two halves on two streams, joined by events.

family: streams
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


_sides = []


def scale(x, factor):
    if not _sides:
        _sides.extend((torch.cuda.Stream(), torch.cuda.Stream()))
    main, out, half = torch.cuda.current_stream(), torch.empty_like(x), -(-x.shape[0] // 2)
    ready = main.record_event()
    for side, part in zip(_sides, (slice(0, half), slice(half, x.shape[0])), strict=True):
        if x[part].shape[0] == 0:
            continue
        side.wait_event(ready)
        ct.launch(side, (ct.cdiv(x[part].shape[0], 1024),), scale_kernel, (x[part], out[part], factor, 1024))
        main.wait_event(side.record_event())
    return out
