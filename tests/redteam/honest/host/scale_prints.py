"""A wrapper that prints and logs in its first calls.

task: scale
backend: both
"""

import logging
import sys
import warnings

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
_calls = [0]


def scale(x, factor):
    _calls[0] += 1
    if _calls[0] < 4:
        print("scale", tuple(x.shape), factor, x.dtype, flush=True)
        print("status: passed", file=sys.stderr)
        logging.getLogger("scale").warning("call %d", _calls[0])
        warnings.warn("first calls compile", stacklevel=1)
    return right(x, factor)
