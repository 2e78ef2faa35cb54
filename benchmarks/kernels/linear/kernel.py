"""A linear layer in cuTile, with its epilogue on the float32 accumulator."""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
TILE_M, TILE_N, TILE_K = 32, 32, 16


@ct.kernel
def linear_kernel(x, w, bias, out, scale, TM: Size, TN: Size, TK: Size):
    row, column = ct.bid(0), ct.bid(1)
    total = ct.zeros((TM, TN), ct.float32)
    for step in range(ct.num_tiles(x, axis=1, shape=(TM, TK))):
        left = ct.load(x, index=(row, step), shape=(TM, TK), padding_mode=ZERO)
        right = ct.load(w, index=(step, column), shape=(TK, TN), padding_mode=ZERO)
        total = ct.mma(left, right, total)
    total = total + ct.load(bias, index=(column,), shape=(TN,), padding_mode=ZERO).astype(ct.float32)
    total = ct.maximum(total, 0.0) * scale
    ct.store(out, index=(row, column), tile=total.astype(out.dtype))


def linear(x, w, bias, scale):
    out = torch.empty(x.shape[0], w.shape[1], dtype=x.dtype, device=x.device)
    grid = (ct.cdiv(out.shape[0], TILE_M), ct.cdiv(out.shape[1], TILE_N))
    ct.launch(torch.cuda.current_stream(), grid, linear_kernel, (x, w, bias, out, scale, TILE_M, TILE_N, TILE_K))
    return out
