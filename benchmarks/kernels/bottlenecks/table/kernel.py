"""Every block reads the whole table, which stays in the L2 cache."""

import cuda.tile as ct
import torch

ROWS = 8
Size = ct.Constant[int]


@ct.kernel(occupancy=4)
def table_kernel(table, weights, out, M: Size, N: Size):
    block = ct.bid(0)
    tiles = ct.num_tiles(table, axis=0, shape=(M, N))
    total = ct.zeros((1, N), ct.float32)
    for step in range(tiles):
        where = (step + block * 7) % tiles
        part = ct.load(table, index=(where, 0), shape=(M, N), padding_mode=ct.PaddingMode.ZERO)
        total = total + ct.sum(part, axis=0, keepdims=True)
    weight = ct.load(weights, index=(block,), shape=(1,))
    ct.store(out, index=(block, 0), tile=total * ct.reshape(weight, (1, 1)))


def from_the_cache(table, weights):
    """A block for each row of the output; N is at most what fits in one tile."""
    out = torch.empty(weights.shape[0], table.shape[1], dtype=table.dtype, device=table.device)
    width = 1 << (table.shape[1] - 1).bit_length()
    ct.launch(torch.cuda.current_stream(), (weights.shape[0],), table_kernel, (table, weights, out, ROWS, width))
    return out
