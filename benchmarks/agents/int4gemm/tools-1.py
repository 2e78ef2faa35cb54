"""Product with weights of 4 bits in cuTile: the transposed product, its codes made in registers, K split over blocks."""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
GROUP = 128
SPLIT = 4
TILE_W = 128  # words of two columns
SUM_W = 32
MASK = 0x000F000F  # passed at run time, as the start of the sums is: the compiler then keeps it in one register


def weights(pair, mask, factor, TW: Size, TK: Size):
    """Two codes of 0 to 15, at bits 0 and 16 of each pair -> weights in bfloat16, adjacent in the last axis.

    The bits of 128 + code, less 136: both steps exact.
    """
    bits = (pair & mask) | 0x43004300
    codes = ct.unpack_from_bytes(ct.pack_to_bytes(bits), ct.bfloat16)
    return (ct.reshape(codes, (TW, TK)) - 136.0) * factor


def factor(scales, c: Size):
    return ct.bitcast((scales >> (16 * c)).astype(ct.uint16), ct.bfloat16)


def both(low, high):
    """Two tiles of float32 -> one of words, each two bfloat16."""
    low = ct.bitcast(low.astype(ct.bfloat16), ct.uint16).astype(ct.int32)
    high = ct.bitcast(high.astype(ct.bfloat16), ct.uint16).astype(ct.int32)
    return low | (high << 16)


@ct.kernel(num_worker_warps=8)
def int4_gemm_kernel(
    x, packed, scale, out, mask, start, rounds, SPLIT: Size, UNROLL: Size, TM: Size, TW: Size, TK: Size
):
    """packed (K / 4, 2, N / 2) of uint16, scale (K / 128, N / 2) of int32; out (M, N / 2) of int32 without a split,
    else the partial sums (2 * SPLIT, N / 2, M) in float32."""
    part, j, i = ct.bid(0), ct.bid(1), ct.bid(2)
    half = SPLIT * UNROLL * rounds
    t0 = ct.full((TW, TM), start, ct.float32)
    t1 = t0
    for turn in range(rounds):
        for u in ct.static_iter(range(UNROLL)):
            step = (part * rounds + turn) * UNROLL + u
            even = ct.load(packed, (j, 0, step), (TW, 1, TK // 2), order=(2, 1, 0), padding_mode=ZERO)
            odd = ct.load(packed, (j, 1, step), (TW, 1, TK // 2), order=(2, 1, 0), padding_mode=ZERO)
            even = ct.reshape(even, (TW, TK // 2)).astype(ct.int32)
            odd = ct.reshape(odd, (TW, TK // 2)).astype(ct.int32)
            pair = even | (odd << 16)
            right = ct.load(x, (step, i), (TK, TM), order=(1, 0), padding_mode=ZERO)
            scales = ct.load(scale, (j, step), (TW, 1), order=(1, 0), padding_mode=ZERO)
            t0 = ct.mma(weights(pair, mask, factor(scales, 0), TW, TK), right, t0)
            t1 = ct.mma(weights(pair >> 8, mask, factor(scales, 1), TW, TK), right, t1)
            right = ct.load(x, (step + half, i), (TK, TM), order=(1, 0), padding_mode=ZERO)
            scales = ct.load(scale, (j, step + half), (TW, 1), order=(1, 0), padding_mode=ZERO)
            t0 = ct.mma(weights(pair >> 4, mask, factor(scales, 0), TW, TK), right, t0)
            t1 = ct.mma(weights(pair >> 12, mask, factor(scales, 1), TW, TK), right, t1)
    if SPLIT == 1:
        ct.store(out, (j, i), both(t0, t1), order=(1, 0))
    else:
        ct.store(out, (2 * part, j, i), ct.reshape(t0, (1, TW, TM)))
        ct.store(out, (2 * part + 1, j, i), ct.reshape(t1, (1, TW, TM)))


@ct.kernel
def sum_kernel(parts, out, SPLIT: Size, TM: Size, TW: Size):
    j, i = ct.bid(0), ct.bid(1)
    t0 = ct.zeros((1, TW, TM), ct.float32)
    t1 = t0
    for part in ct.static_iter(range(SPLIT)):
        t0 += ct.load(parts, (2 * part, j, i), (1, TW, TM), padding_mode=ZERO)
        t1 += ct.load(parts, (2 * part + 1, j, i), (1, TW, TM), padding_mode=ZERO)
    ct.store(out, (j, i), ct.reshape(both(t0, t1), (TW, TM)), order=(1, 0))


def int4_gemm(x, packed, scale):
    """x (M, K), packed (K / 2, N) uint8, scale (K / 128, N) -> out (M, N) of x's dtype; K is a multiple of 256."""
    m, k = x.shape
    n = packed.shape[1]
    out = torch.empty(m, n, dtype=x.dtype, device=x.device)
    tile_m = 16 if m <= 16 else 32 if m <= 32 else 64
    blocks_m = ct.cdiv(m, tile_m)
    groups = k // (2 * GROUP)
    split = SPLIT if groups % SPLIT == 0 else 2 if groups % 2 == 0 else 1
    unroll = 2 if groups // split % 2 == 0 else 1
    rounds = groups // split // unroll
    words = packed.view(torch.uint16).view(k // 4, 2, n // 2)
    result = out.view(torch.int32)
    if split > 1:
        target = torch.empty(2 * split, n // 2, blocks_m * tile_m, dtype=torch.float32, device=x.device)
    else:
        target = result
    stream = torch.cuda.current_stream()
    grid = (split, ct.cdiv(n // 2, TILE_W), blocks_m)
    arguments = (x, words, scale.view(torch.int32), target, MASK, 0.0, rounds, split, unroll, tile_m, TILE_W, GROUP)
    ct.launch(stream, grid, int4_gemm_kernel, arguments)
    if split > 1:
        ct.launch(stream, (ct.cdiv(n // 2, SUM_W), blocks_m), sum_kernel, (target, result, split, tile_m, SUM_W))
    return out
