"""A grid that fills the device, in place.

family: grids
task: accumulate
backend: both
"""

import cuda.tile as ct
import torch

TILE = 2048


@ct.kernel
def accumulate_kernel(x, y_in, y_out, alpha, T: ct.Constant[int]):
    for block in range(ct.bid(0), ct.num_tiles(x, axis=0, shape=(T,)), ct.num_blocks(0)):
        add = ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
        old = ct.load(y_in, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
        ct.store(y_out, index=(block,), tile=old + add * alpha)


def accumulate(x, y, alpha):
    blocks = min(ct.cdiv(x.shape[0], TILE), 4 * torch.cuda.get_device_properties(x.device).multi_processor_count)
    ct.launch(torch.cuda.current_stream(), (blocks,), accumulate_kernel, (x, y, y, alpha, TILE))
