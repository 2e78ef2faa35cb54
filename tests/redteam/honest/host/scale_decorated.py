"""An entry point under no_grad and inference_mode decorators.

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


TILE = 1024


@torch.no_grad()
def _inner(x, factor):
    return right(x, factor)


@torch.inference_mode()
def scale(x, factor):
    return _inner(x, factor)
