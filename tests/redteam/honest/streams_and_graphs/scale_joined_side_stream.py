"""Work on a side stream that is joined again.

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


TILE = 1024
_side = []


def scale(x, factor):
    if not _side:
        _side.append(torch.cuda.Stream())
    main, side = torch.cuda.current_stream(), _side[0]
    side.wait_stream(main)
    with torch.cuda.stream(side):
        out = right(x, factor)
    main.wait_stream(side)
    out.record_stream(main)
    return out
