"""Launch half the blocks in every second call with the same address.

family: results
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


_calls = {}


def scale(x, factor):
    key = (x.data_ptr(), x.shape[0])
    _calls[key] = _calls.get(key, 0) + 1
    out = torch.empty_like(x)
    blocks = ct.cdiv(x.shape[0], TILE)
    if _calls[key] % 2 == 0 and blocks > 1000:
        blocks //= 2
    ct.launch(torch.cuda.current_stream(), (blocks,), scale_kernel, (x, out, factor, TILE))
    return out
