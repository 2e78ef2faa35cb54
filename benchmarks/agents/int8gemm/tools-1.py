"""int8 matrix product with scales in cuTile: b is transposed once, so that both operands reach the tensor cores as K-major."""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
TILE_M, TILE_N, TILE_K = 128, 256, 128
GROUP = 16
BLOCKS = 132  # one persistent block per SM of an H200
TRANS_K, TRANS_N = 32, 32  # words of four int8


@ct.kernel
def transpose_kernel(b, bt, TK: Size, TN: Size):
    """b (K/4, 4, N/4) -> bt (N/4, 4, K/4), both int32 words of four int8: 4x4 bytes in registers, words through shared memory."""
    k, j = ct.bid(0), ct.bid(1)
    w0 = ct.load(b, (k, 0, j), (TK, 1, TN), padding_mode=ZERO).reshape((TK, TN))
    w1 = ct.load(b, (k, 1, j), (TK, 1, TN), padding_mode=ZERO).reshape((TK, TN))
    w2 = ct.load(b, (k, 2, j), (TK, 1, TN), padding_mode=ZERO).reshape((TK, TN))
    w3 = ct.load(b, (k, 3, j), (TK, 1, TN), padding_mode=ZERO).reshape((TK, TN))
    for c in ct.static_iter(range(4)):
        low = ((w0 >> (8 * c)) & 255) | (((w1 >> (8 * c)) & 255) << 8)
        high = (((w2 >> (8 * c)) & 255) << 16) | ((w3 >> (8 * c)) << 24)
        ct.store(bt, (j, c, k), ct.transpose(low | high).reshape((TN, 1, TK)))


@ct.kernel(num_worker_warps=8)
def int8_gemm_kernel(a, bt, row_scale, column_scale, out, TM: Size, TN: Size, TK: Size, GROUP_M: Size):
    tiles_m = ct.num_tiles(out, axis=0, shape=(TM, TN))
    tiles_n = ct.num_tiles(out, axis=1, shape=(TM, TN))
    steps = ct.num_tiles(a, axis=1, shape=(TM, TK))
    in_group = GROUP_M * tiles_n
    for block in range(ct.bid(0), tiles_m * tiles_n, ct.num_blocks(0)):
        first = (block // in_group) * GROUP_M
        height = min(tiles_m - first, GROUP_M)
        i = first + (block % in_group) % height
        j = (block % in_group) // height
        total = ct.zeros((TM, TN), ct.int32)
        for k in range(steps):
            left = ct.load(a, (i, k), (TM, TK), padding_mode=ZERO)
            right = ct.load(bt, (k, j), (TK, TN), order=(1, 0), padding_mode=ZERO)
            total = ct.mma(left, right, total)
        rows = ct.load(row_scale, (i,), (TM,), padding_mode=ZERO)
        columns = ct.load(column_scale, (j,), (TN,), padding_mode=ZERO)
        scaled = total.astype(ct.float32) * rows[:, None] * columns[None, :]
        ct.store(out, (i, j), scaled.astype(ct.float16))


def int8_gemm(a, b, row_scale, column_scale):
    """a (M, K), b (K, N) int8, row_scale (M,), column_scale (N,) float32 -> out (M, N) float16."""
    m, k, n = a.shape[0], a.shape[1], b.shape[1]
    stream = torch.cuda.current_stream()
    out = torch.empty(m, n, dtype=torch.float16, device=a.device)
    bt = torch.empty(n, k, dtype=torch.int8, device=a.device)
    words = b.view(torch.int32).view(k // 4, 4, n // 4)
    turned = bt.view(torch.int32).view(n // 4, 4, k // 4)
    grid = (ct.cdiv(k // 4, TRANS_K), ct.cdiv(n // 4, TRANS_N))
    ct.launch(stream, grid, transpose_kernel, (words, turned, TRANS_K, TRANS_N))
    grid = (min(ct.cdiv(m, TILE_M) * ct.cdiv(n, TILE_N), BLOCKS),)
    arguments = (a, bt, row_scale, column_scale, out, TILE_M, TILE_N, TILE_K, GROUP)
    ct.launch(stream, grid, int8_gemm_kernel, arguments)
    return out
