"""Compute in torch with the dispatch modes switched off that would count it.

family: harness
task: scale
backend: cpu
"""

import cuda.tile as ct
import torch
from torch.utils._python_dispatch import _disable_current_modes

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


def scale(x, factor):
    with _disable_current_modes(), torch._C._DisableTorchDispatch():
        out = x * factor
    right(x[:128], factor)
    return out
