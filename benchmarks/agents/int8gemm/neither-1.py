"""int8 matrix product with scales in cuTile: b is transposed once, so that both operands of the product are K-major."""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
TILE_M, TILE_N, TILE_K = 256, 256, 128
GROUP = 8
CLUSTERS = 66
TRANSPOSE_K, TRANSPOSE_N = 32, 32


@ct.kernel
def transpose_kernel(b, bt, TK: Size, TN: Size):
    """b (K / 4, 4, N / 4), bt (N / 4, 4, K / 4): four int8 in each int32, along N in b and along K in bt."""
    k, j = ct.bid(0), ct.bid(1)
    w = ct.load(b, (k, 0, j), (TK, 1, TN), padding_mode=ZERO).reshape((TK, TN))
    x = ct.load(b, (k, 1, j), (TK, 1, TN), padding_mode=ZERO).reshape((TK, TN))
    y = ct.load(b, (k, 2, j), (TK, 1, TN), padding_mode=ZERO).reshape((TK, TN))
    z = ct.load(b, (k, 3, j), (TK, 1, TN), padding_mode=ZERO).reshape((TK, TN))
    column0 = (w & 255) | ((x & 255) << 8) | ((y & 255) << 16) | (z << 24)
    column1 = ((w >> 8) & 255) | (((x >> 8) & 255) << 8) | (((y >> 8) & 255) << 16) | ((z >> 8) << 24)
    column2 = ((w >> 16) & 255) | (((x >> 16) & 255) << 8) | (((y >> 16) & 255) << 16) | ((z >> 16) << 24)
    column3 = ((w >> 24) & 255) | (((x >> 24) & 255) << 8) | (((y >> 24) & 255) << 16) | ((z >> 24) << 24)
    ct.store(bt, (j, 0, k), ct.transpose(column0).reshape((TN, 1, TK)))
    ct.store(bt, (j, 1, k), ct.transpose(column1).reshape((TN, 1, TK)))
    ct.store(bt, (j, 2, k), ct.transpose(column2).reshape((TN, 1, TK)))
    ct.store(bt, (j, 3, k), ct.transpose(column3).reshape((TN, 1, TK)))


@ct.kernel(num_ctas=2, num_worker_warps=8, occupancy=1)
def int8_gemm_kernel(a, bt, row_scale, column_scale, out, TM: Size, TN: Size, TK: Size, G: Size):
    tiles_m = ct.cdiv(a.shape[0], TM)
    tiles_n = ct.cdiv(bt.shape[0], TN)
    steps = ct.cdiv(a.shape[1], TK)
    per_group = G * tiles_n
    for tile in range(ct.bid(0), tiles_m * tiles_n, ct.num_blocks(0)):
        first = tile // per_group * G
        rows_here = min(tiles_m - first, G)
        inside = tile % per_group
        i = first + inside % rows_here
        j = inside // rows_here
        total = ct.zeros((TM, TN), ct.int32)
        for k in range(steps):
            left = ct.load(a, (i, k), (TM, TK), padding_mode=ZERO)
            right = ct.load(bt, (j, k), (TN, TK), padding_mode=ZERO)
            total = ct.mma(left, ct.transpose(right), total)
        rows = ct.load(row_scale, (i,), (TM,), padding_mode=ZERO)
        columns = ct.load(column_scale, (j,), (TN,), padding_mode=ZERO)
        scaled = total.astype(ct.float32) * rows[:, None] * columns[None, :]
        ct.store(out, (i, j), scaled.astype(ct.float16))


def int8_gemm(a, b, row_scale, column_scale):
    """a (M, K), b (K, N) int8, row_scale (M,), column_scale (N,) float32 -> out (M, N) float16."""
    (m, depth), n = a.shape, b.shape[1]
    stream = torch.cuda.current_stream()
    bt = torch.empty((n, depth), dtype=torch.int8, device=b.device)
    words = b.view(torch.int32).view(depth // 4, 4, n // 4)
    words_t = bt.view(torch.int32).view(n // 4, 4, depth // 4)
    grid = (ct.cdiv(depth // 4, TRANSPOSE_K), ct.cdiv(n // 4, TRANSPOSE_N))
    ct.launch(stream, grid, transpose_kernel, (words, words_t, TRANSPOSE_K, TRANSPOSE_N))
    out = torch.empty((m, n), dtype=torch.float16, device=a.device)
    grid = (min(ct.cdiv(m, TILE_M) * ct.cdiv(n, TILE_N), CLUSTERS),)
    arguments = (a, bt, row_scale, column_scale, out, TILE_M, TILE_N, TILE_K, GROUP)
    ct.launch(stream, grid, int8_gemm_kernel, arguments)
    return out
