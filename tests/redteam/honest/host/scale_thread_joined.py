"""A launch from a thread that is joined before the call returns.

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


TILE = 1024


def scale(x, factor):
    made, stream = [], torch.cuda.current_stream()

    def work():
        with torch.cuda.stream(stream):
            made.append(right(x, factor))

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    return made[0]
