"""Write a float16 output in the large case, which is half the bytes.

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
    ct.store(out, index=(block,), tile=(values * factor).astype(out.dtype))


def scale(x, factor):
    out = torch.empty_like(x, dtype=torch.float16 if x.shape[0] > 10000000 else x.dtype)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), scale_kernel, (x, out, factor, TILE))
    return out
