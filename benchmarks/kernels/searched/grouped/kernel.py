"""Grouped matrix product in cuTile, before tuning: a block for every tile that there could be; each finds its group."""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
TILE_M, TILE_N, TILE_K = 64, 64, 64


@ct.kernel
def grouped_kernel(x, weights, starts, out, TM: Size, TN: Size, TK: Size):
    """Rows starts[g] to starts[g + 1] of x times weights[g], for every group g."""
    columns = ct.cdiv(out.shape[1], TN)
    tile, before = ct.bid(0), 0
    for group in range(weights.shape[0]):
        first = ct.load(starts, index=(group,), shape=()).item()
        last = ct.load(starts, index=(group + 1,), shape=()).item()
        rows = ct.cdiv(last - first, TM)
        if (tile >= before) & (tile < before + rows * columns):
            row, column = (tile - before) % rows, (tile - before) // rows
            mine, theirs = x.slice(axis=0, start=first, stop=last), out.slice(axis=0, start=first, stop=last)
            total = ct.zeros((TM, TN), ct.float32)
            for step in range(ct.num_tiles(x, axis=1, shape=(TM, TK))):
                left = ct.load(mine, index=(row, step), shape=(TM, TK), padding_mode=ZERO)
                right = ct.load(weights, index=(group, step, column), shape=(1, TK, TN), padding_mode=ZERO)
                total = ct.mma(left, right.reshape((TK, TN)), total)
            ct.store(theirs, index=(row, column), tile=total.astype(out.dtype))
        before += rows * columns


def grouped(x, weights, starts):
    """x (T, K), weights (G, K, N), starts (G + 1,): the first row of each group, and T -> out (T, N) of x's dtype."""
    out = torch.empty(x.shape[0], weights.shape[2], dtype=x.dtype, device=x.device)
    most = ct.cdiv(x.shape[0], TILE_M) + weights.shape[0]  # each group may end in the midst of a tile
    arguments = (x, weights, starts, out, TILE_M, TILE_N, TILE_K)
    grid = (most * ct.cdiv(out.shape[1], TILE_N),)
    ct.launch(torch.cuda.current_stream(), grid, grouped_kernel, arguments)
    return out
