"""int8 matrix product with scales in cuTile, before tuning."""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
TILE_M, TILE_N, TILE_K = 64, 64, 64


@ct.kernel
def int8_gemm_kernel(a, b, row_scale, column_scale, out, TM: Size, TN: Size, TK: Size):
    i, j = ct.bid(0), ct.bid(1)
    total = ct.zeros((TM, TN), ct.int32)
    for k in range(ct.num_tiles(a, axis=1, shape=(TM, TK))):
        left = ct.load(a, (i, k), (TM, TK), padding_mode=ZERO)
        right = ct.load(b, (k, j), (TK, TN), padding_mode=ZERO)
        total = ct.mma(left, right, total)
    rows = ct.load(row_scale, (i,), (TM,), padding_mode=ZERO)
    columns = ct.load(column_scale, (j,), (TN,), padding_mode=ZERO)
    scaled = total.astype(ct.float32) * rows[:, None] * columns[None, :]
    ct.store(out, (i, j), scaled.astype(ct.float16))


def int8_gemm(a, b, row_scale, column_scale):
    """a (M, K), b (K, N) int8, row_scale (M,), column_scale (N,) float32 -> out (M, N) float16."""
    out = torch.empty(a.shape[0], b.shape[1], dtype=torch.float16, device=a.device)
    grid = (ct.cdiv(a.shape[0], TILE_M), ct.cdiv(b.shape[1], TILE_N))
    arguments = (a, b, row_scale, column_scale, out, TILE_M, TILE_N, TILE_K)
    ct.launch(torch.cuda.current_stream(), grid, int8_gemm_kernel, arguments)
    return out
