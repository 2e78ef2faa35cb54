"""One block does the work of all in the large case, the others do next to nothing; a model that samples may miss it.

family: results
task: rowsum
backend: cpu
"""

import cuda.tile as ct
import torch

TILE = 128


@ct.kernel
def rowsum_kernel(x, out, heavy, T: ct.Constant[int]):
    block = ct.bid(0)
    first = ct.where(block == heavy, 0, x.shape[0])
    for row in range(first, x.shape[0]):
        total = ct.zeros((1,), ct.float32)
        for step in range(ct.num_tiles(x, axis=1, shape=(1, T))):
            values = ct.load(x, index=(row, step), shape=(1, T), padding_mode=ct.PaddingMode.ZERO)
            total = total + ct.sum(values, axis=1)
        ct.store(out, index=(row,), tile=total)


def rowsum(x):
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    blocks = x.shape[0]
    ct.launch(torch.cuda.current_stream(), (blocks,), rowsum_kernel, (x, out, int(0.37 * blocks), TILE))
    return out
