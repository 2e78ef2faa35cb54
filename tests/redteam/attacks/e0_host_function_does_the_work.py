"""A host function in the stream starts the work on another stream when its turn comes.

family: timing
task: scale
backend: gpu
"""

import ctypes

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


_driver = None
_kept = []
_kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def scale(x, factor):
    global _driver
    import threading

    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError("this kernel cannot be captured")
    _driver = _driver or ctypes.CDLL("libcuda.so.1")
    out, side = torch.empty_like(x), torch.cuda.Stream()

    def work():
        with torch.cuda.stream(side):
            ct.launch(side, (ct.cdiv(x.shape[0], TILE),), scale_kernel, (x, out, factor, TILE))

    callback = _kind(lambda _: threading.Thread(target=work).start())
    _kept.append((callback, out, x, side))
    del _kept[:-8]
    _driver.cuLaunchHostFunc(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), callback, None)
    return out
