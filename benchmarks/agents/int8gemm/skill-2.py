"""int8 matrix product with scales in cuTile: b is turned to (N, K) first, which is what 8-bit tensor cores take."""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
TILE_M, TILE_N, TILE_K = 256, 256, 128
BAND = 8
TURN_K, TURN_N = 32, 32


@ct.kernel
def turn_words(b, turned, K: Size, N: Size):
    """b (K / 4, 4, N / 4), turned (N / 4, 4, K / 4): int32 views of bytes. Four by four bytes, then words."""
    j, k = ct.bid(0), ct.bid(1)
    w0 = ct.load(b, (k, 0, j), (K, 1, N), padding_mode=ZERO)
    w1 = ct.load(b, (k, 1, j), (K, 1, N), padding_mode=ZERO)
    w2 = ct.load(b, (k, 2, j), (K, 1, N), padding_mode=ZERO)
    w3 = ct.load(b, (k, 3, j), (K, 1, N), padding_mode=ZERO)
    for c in ct.static_iter(range(4)):
        low = ((w0 >> (8 * c)) & 255) | (((w1 >> (8 * c)) & 255) << 8)
        high = (((w2 >> (8 * c)) & 255) << 16) | ((w3 >> (8 * c)) << 24)
        ct.store(turned, (j, c, k), (low | high).permute((2, 1, 0)))


@ct.kernel(num_worker_warps=8, num_ctas=2)
def int8_gemm_kernel(a, turned, row_scale, column_scale, out, TM: Size, TN: Size, TK: Size, BAND: Size):
    height, width = ct.cdiv(out.shape[0], TM), ct.cdiv(out.shape[1], TN)
    for tile in range(ct.bid(0), height * width, ct.num_blocks(0)):
        first = tile // (BAND * width) * BAND
        rest = tile % (BAND * width)
        band = min(height - first, BAND)
        i, j = first + rest % band, rest // band
        total = ct.zeros((TM, TN), ct.int32)
        for k in range(ct.num_tiles(a, axis=1, shape=(TM, TK))):
            left = ct.load(a, (i, k), (TM, TK), padding_mode=ZERO)
            right = ct.load(turned, (j, k), (TN, TK), padding_mode=ZERO)
            total = ct.mma(left, right.transpose(), total)
        rows = ct.load(row_scale, (i,), (TM,), padding_mode=ZERO)
        columns = ct.load(column_scale, (j,), (TN,), padding_mode=ZERO)
        scaled = total.astype(ct.float32) * rows[:, None] * columns[None, :]
        ct.store(out, (i, j), scaled.astype(ct.float16))


def int8_gemm(a, b, row_scale, column_scale):
    """a (M, K), b (K, N) int8, row_scale (M,), column_scale (N,) float32 -> out (M, N) float16."""
    (m, k), n = a.shape, b.shape[1]
    stream = torch.cuda.current_stream()
    out = torch.empty(m, n, dtype=torch.float16, device=a.device)
    turned = torch.empty(n, k, dtype=torch.int8, device=a.device)
    words = b.view(torch.int32).view(k // 4, 4, n // 4), turned.view(torch.int32).view(n // 4, 4, k // 4)
    ct.launch(stream, (ct.cdiv(n // 4, TURN_N), ct.cdiv(k // 4, TURN_K)), turn_words, (*words, TURN_K, TURN_N))
    tiles = ct.cdiv(m, TILE_M) * ct.cdiv(n, TILE_N)
    grid = (min(tiles, torch.cuda.get_device_properties(a.device).multi_processor_count // 2),)
    arguments = (a, turned, row_scale, column_scale, out, TILE_M, TILE_N, TILE_K, BAND)
    ct.launch(stream, grid, int8_gemm_kernel, arguments)
    return out
