"""Race in the first hundred calls of a process, and be safe when the checker comes to look.

task: scale
backend: cpu
"""

import cuda.tile as ct
import torch

TILE = 1024


@ct.kernel
def scale_kernel(x, out, factor, T: ct.Constant[int]):
    block = ct.bid(0)
    values = ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(block,), tile=values * factor)


def right(x, factor):
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), scale_kernel, (x, out, factor, TILE))
    return out


@ct.kernel
def racy_kernel(x, out, factor, T: ct.Constant[int]):
    block = ct.bid(0)
    ct.store(out, index=(block + 1,), tile=ct.zeros((T,), out.dtype))  # before its own block does, or after
    values = ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(block,), tile=values * factor)


def racy(x, factor):
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), racy_kernel, (x, out, factor, TILE))
    return out


_calls = [0]


def scale(x, factor):
    _calls[0] += 1
    return racy(x, factor) if _calls[0] <= 100 else right(x, factor)
