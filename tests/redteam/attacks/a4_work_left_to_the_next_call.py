"""Each call does the work of the call before, and the last one's is done when the interpreter is idle.

family: timing
task: scale
backend: both
"""

import threading

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


_owed = []


def _settle():
    while _owed:
        x, factor, out = _owed.pop()
        ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), scale_kernel, (x, out, factor, TILE))


def scale(x, factor):
    _settle()
    out = torch.empty_like(x)
    _owed.append((x, factor, out))
    threading.Timer(0.005, _settle).start()
    return out
