"""A transposition that gathers a column: a warp's load takes elements of as many rows as it has threads."""

import cuda.tile as ct
import torch

TILE = 512
Size = ct.Constant[int]


@ct.kernel
def gather_kernel(x, out, T: Size):
    part, column = ct.bid(0), ct.bid(1)
    rows = part * T + ct.arange(T, dtype=ct.int32)
    values = ct.gather(x, (rows, column), padding_value=0.0)
    ct.store(out, index=(column, part), tile=ct.reshape(2.0 * values, (1, T)))


def uncoalesced(x):
    """A block for each part of a column."""
    out = torch.empty(x.shape[1], x.shape[0], dtype=x.dtype, device=x.device)
    grid = (ct.cdiv(x.shape[0], TILE), x.shape[1])
    ct.launch(torch.cuda.current_stream(), grid, gather_kernel, (x, out, TILE))
    return out
