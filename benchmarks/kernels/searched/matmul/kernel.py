"""Matrix product in cuTile, before tuning: blocks visit the output's tiles in bands of GROUP rows of tiles."""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
TILE_M, TILE_N, TILE_K = 64, 64, 64
GROUP = 8


@ct.kernel
def matmul_kernel(a, b, out, TM: Size, TN: Size, TK: Size, BAND: Size):
    rows, columns = ct.cdiv(out.shape[0], TM), ct.cdiv(out.shape[1], TN)
    band = BAND * columns
    first = ct.bid(0) // band * BAND
    height = min(rows - first, BAND)
    row, column = first + ct.bid(0) % band % height, ct.bid(0) % band // height
    total = ct.zeros((TM, TN), ct.float32)
    for step in range(ct.num_tiles(a, axis=1, shape=(TM, TK))):
        left = ct.load(a, index=(row, step), shape=(TM, TK), padding_mode=ZERO)
        right = ct.load(b, index=(step, column), shape=(TK, TN), padding_mode=ZERO)
        total = ct.mma(left, right, total)
    ct.store(out, index=(row, column), tile=total.astype(out.dtype))


def matmul(a, b):
    """a (M, K) @ b (K, N) of one dtype -> out (M, N) of that dtype, accumulated in float32."""
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    grid = (ct.cdiv(out.shape[0], TILE_M) * ct.cdiv(out.shape[1], TILE_N),)
    ct.launch(torch.cuda.current_stream(), grid, matmul_kernel, (a, b, out, TILE_M, TILE_N, TILE_K, GROUP))
    return out
