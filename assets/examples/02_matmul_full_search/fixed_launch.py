"""Matrix product in cuTile, before tuning: one block computes one tile of the output, tiles in row-major order."""

import cuda.tile as ct
import torch

ConstInt = ct.Constant[int]

TILE_M, TILE_N, TILE_K = 64, 64, 64


@ct.kernel
def matmul_kernel(a, b, out, TM: ConstInt, TN: ConstInt, TK: ConstInt):
    row, column = ct.bid(0), ct.bid(1)
    total = ct.zeros((TM, TN), ct.float32)
    for step in range(ct.num_tiles(a, axis=1, shape=(TM, TK))):
        left = ct.load(a, index=(row, step), shape=(TM, TK), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, index=(step, column), shape=(TK, TN), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(left, right, total)
    ct.store(out, index=(row, column), tile=total.astype(out.dtype))


def matmul(a, b):
    """a (M, K) @ b (K, N) of one dtype -> out (M, N) of that dtype, accumulated in float32."""
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    grid = (ct.cdiv(out.shape[0], TILE_M), ct.cdiv(out.shape[1], TILE_N))
    ct.launch(torch.cuda.current_stream(), grid, matmul_kernel, (a, b, out, TILE_M, TILE_N, TILE_K))
    return out
