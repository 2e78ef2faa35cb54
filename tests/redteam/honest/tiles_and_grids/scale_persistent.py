"""A grid of as many blocks as fill the device, each of which takes every so manieth tile.

task: scale
backend: both
"""

import cuda.tile as ct
import torch

TILE = 1024


@ct.kernel
def scale_kernel(x, out, factor, T: ct.Constant[int]):
    for block in range(ct.bid(0), ct.num_tiles(x, axis=0, shape=(T,)), ct.num_blocks(0)):
        values = ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
        ct.store(out, index=(block,), tile=values * factor)


def scale(x, factor):
    out = torch.empty_like(x)
    wanted = 8 * torch.cuda.get_device_properties(x.device).multi_processor_count
    blocks = min(wanted, ct.cdiv(x.shape[0], TILE))
    ct.launch(torch.cuda.current_stream(), (blocks,), scale_kernel, (x, out, factor, TILE))
    return out
