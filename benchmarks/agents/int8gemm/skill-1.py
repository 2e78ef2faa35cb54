"""int8 matrix product with scales in cuTile: b transposed once, then a product of K-major operands."""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
TILE_M, TILE_N, TILE_K = 128, 256, 128
TURN_K, TURN_N = 32, 32  # in words of four bytes
BAND = 16


@ct.kernel
def turn_kernel(b, turned, TK: Size, TN: Size):
    """b (K / 4, 4, N / 4), turned (N / 4, 4, K / 4): words of four int8. Transposes 4 by 4 bytes in registers, then words."""
    k, j = ct.bid(0), ct.bid(1)
    w0 = ct.load(b, (k, 0, j), (TK, 1, TN), padding_mode=ZERO)
    w1 = ct.load(b, (k, 1, j), (TK, 1, TN), padding_mode=ZERO)
    w2 = ct.load(b, (k, 2, j), (TK, 1, TN), padding_mode=ZERO)
    w3 = ct.load(b, (k, 3, j), (TK, 1, TN), padding_mode=ZERO)
    even01 = (w0 & 0x00FF00FF) | ((w1 & 0x00FF00FF) << 8)  # bytes 0 and 2 of rows 0 and 1
    even23 = (w2 & 0x00FF00FF) | ((w3 & 0x00FF00FF) << 8)
    odd01 = ((w0 >> 8) & 0x00FF00FF) | ((w1 >> 8 & 0x00FF00FF) << 8)
    odd23 = ((w2 >> 8) & 0x00FF00FF) | ((w3 >> 8 & 0x00FF00FF) << 8)
    t0 = (even01 & 0xFFFF) | (even23 << 16)
    t1 = (odd01 & 0xFFFF) | (odd23 << 16)
    t2 = ((even01 >> 16) & 0xFFFF) | ((even23 >> 16) << 16)
    t3 = ((odd01 >> 16) & 0xFFFF) | ((odd23 >> 16) << 16)
    ct.store(turned, (j, 0, k), t0.permute((2, 1, 0)))
    ct.store(turned, (j, 1, k), t1.permute((2, 1, 0)))
    ct.store(turned, (j, 2, k), t2.permute((2, 1, 0)))
    ct.store(turned, (j, 3, k), t3.permute((2, 1, 0)))


@ct.kernel(num_worker_warps=8)
def int8_gemm_kernel(a, turned, row_scale, column_scale, out, TM: Size, TN: Size, TK: Size, BAND: Size):
    rows, columns = ct.cdiv(out.shape[0], TM), ct.cdiv(out.shape[1], TN)
    for tile in range(ct.bid(0), rows * columns, ct.num_blocks(0)):
        band = tile // (BAND * columns)
        height = min(rows - band * BAND, BAND)
        place = tile % (BAND * columns)
        i, j = band * BAND + place % height, place // height
        total = ct.zeros((TM, TN), ct.int32)
        for k in range(ct.num_tiles(a, axis=1, shape=(TM, TK))):
            left = ct.load(a, (i, k), (TM, TK), padding_mode=ZERO)
            right = ct.load(turned, (j, k), (TN, TK), padding_mode=ZERO)
            total = ct.mma(left, right.transpose(), total)
        row = ct.load(row_scale, (i,), (TM,), padding_mode=ZERO)
        column = ct.load(column_scale, (j,), (TN,), padding_mode=ZERO)
        scaled = total.astype(ct.float32) * row[:, None] * column[None, :]
        ct.store(out, (i, j), scaled.astype(ct.float16))


def int8_gemm(a, b, row_scale, column_scale):
    """a (M, K), b (K, N) int8, row_scale (M,), column_scale (N,) float32 -> out (M, N) float16."""
    stream = torch.cuda.current_stream()
    out = torch.empty(a.shape[0], b.shape[1], dtype=torch.float16, device=a.device)
    words_k, words_n = b.shape[0] // 4, b.shape[1] // 4
    turned = torch.empty(words_n, 4, words_k, dtype=torch.int32, device=a.device)
    grid = (ct.cdiv(words_k, TURN_K), ct.cdiv(words_n, TURN_N))
    words = b.view(torch.int32).view(words_k, 4, words_n)
    ct.launch(stream, grid, turn_kernel, (words, turned, TURN_K, TURN_N))
    turned = turned.view(torch.int8).view(b.shape[1], b.shape[0])
    tiles = ct.cdiv(out.shape[0], TILE_M) * ct.cdiv(out.shape[1], TILE_N)
    blocks = torch.cuda.get_device_properties(a.device).multi_processor_count if a.is_cuda else 1
    grid = (min(tiles, blocks),)
    arguments = (a, turned, row_scale, column_scale, out, TILE_M, TILE_N, TILE_K, BAND)
    ct.launch(stream, grid, int8_gemm_kernel, arguments)
    return out
