"""A matrix times a vector in cuTile: a block takes a few rows and goes along them tile by tile."""

import cuda.tile as ct
import torch

ZERO = ct.PaddingMode.ZERO
Size = ct.Constant[int]


@ct.kernel
def gemv_kernel(matrix, vector, out, ROWS: Size, TILE: Size):
    block = ct.bid(0)
    total = ct.zeros((ROWS, TILE), ct.float32)
    for step in range(ct.num_tiles(matrix, axis=1, shape=(ROWS, TILE))):
        part = ct.load(matrix, index=(block, step), shape=(ROWS, TILE), padding_mode=ZERO).astype(ct.float32)
        other = ct.load(vector, index=(step,), shape=(TILE,), padding_mode=ZERO).astype(ct.float32)
        total = total + part * ct.reshape(other, (1, TILE))
    ct.store(out, index=(block,), tile=ct.sum(total, axis=1).astype(out.dtype))


def gemv(matrix, vector, kernel=gemv_kernel, rows=1, tile=2048):
    """matrix (n, k) @ vector (k,) of one dtype -> out (n,), accumulated in float32."""
    out = torch.empty(matrix.shape[0], dtype=matrix.dtype, device=matrix.device)
    grid = (ct.cdiv(matrix.shape[0], rows),)
    ct.launch(torch.cuda.current_stream(), grid, kernel, (matrix, vector, out, rows, tile))
    return out
