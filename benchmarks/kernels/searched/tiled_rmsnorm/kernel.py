"""RMSNorm in cuTile, before tuning: two passes over ROWS rows in tiles, first for their mean squares."""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
ROWS, TILE = 1, 1024


@ct.kernel
def rmsnorm_kernel(x, weight, out, eps, R: Size, T: Size):
    row = ct.bid(0)
    tiles = ct.num_tiles(x, axis=1, shape=(R, T))
    squares = ct.zeros((R, 1), ct.float32)
    for step in range(tiles):
        a = ct.load(x, index=(row, step), shape=(R, T), padding_mode=ZERO).astype(ct.float32)
        squares = squares + ct.sum(a * a, axis=1, keepdims=True)
    scale = ct.rsqrt(squares / x.shape[1] + eps)
    for step in range(tiles):
        a = ct.load(x, index=(row, step), shape=(R, T), padding_mode=ZERO).astype(ct.float32)
        gain = ct.load(weight, index=(step,), shape=(T,), padding_mode=ZERO).astype(ct.float32)
        ct.store(out, index=(row, step), tile=(a * scale * gain).astype(out.dtype))


def rmsnorm(x, weight, eps):
    """x (M, N) and weight (N,) of one dtype -> out (M, N)."""
    out = torch.empty_like(x)
    grid = (ct.cdiv(x.shape[0], ROWS),)
    ct.launch(torch.cuda.current_stream(), grid, rmsnorm_kernel, (x, weight, out, eps, ROWS, TILE))
    return out
