"""Ask whether a graph is being captured before the first call's preparations.

task: scale
backend: both
"""

import cuda.tile as ct
import torch

TILE = 1024
_prepared = []


@ct.kernel
def scale_kernel(x, out, factor, T: ct.Constant[int]):
    block = ct.bid(0)
    values = ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(block,), tile=values * factor)


def scale(x, factor):
    if not _prepared and not torch.cuda.is_current_stream_capturing():
        _prepared.append(torch.zeros(16, device=x.device))
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), scale_kernel, (x, out, factor, TILE))
    return out
