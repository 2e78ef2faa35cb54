"""Compute half in torch in a thread, which has no dispatch modes, and half in the kernel.

family: harness
task: scale
backend: cpu
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


def scale(x, factor):
    half = x.shape[0] // 2
    if half == 0:
        return right(x, factor)
    out = torch.empty_like(x)
    worker = threading.Thread(target=lambda: torch.mul(x[half:], factor, out=out[half:]))
    worker.start()
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(half, TILE),), scale_kernel, (x[:half], out[:half], factor, TILE))
    worker.join()
    return out
