"""Product with weights of 4 bits in cuTile: split over K, weights widened in registers as pairs, then a small reduction."""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
TILE_M = 32
PAIRS = 64  # pairs of neighbouring columns in a tile
STEP = 128  # rows of `packed` in a step: one group of the scales
SPLIT = 4
CHUNK = 16  # pairs that a block of the reduction takes
MAGIC = 0x43004300  # two bfloat16 of 128: a code OR-ed into the mantissa gives 128 + code
NIBBLES = 0x000F000F


def widen(pair, shift, mask):
    """Codes of two neighbouring rows in an int32 (STEP / 2, PAIRS) -> weights (PAIRS, STEP) of bfloat16."""
    both = ct.transpose(((pair >> shift) & mask) | MAGIC)
    flat = ct.unpack_from_bytes(ct.pack_to_bytes(both), ct.bfloat16)
    return ct.reshape(flat, (both.shape[0], 2 * both.shape[1])) - ct.astile(136.0, dtype=ct.bfloat16)


def even(word):
    return ct.bitcast(word << 16, ct.float32)


def odd(word):
    return ct.bitcast(word & -65536, ct.float32)


def step(x, words, scale, mask, i, j, s, half, keep, first, second, TM, TQ, STEP):
    zero = ct.zeros((TQ, TM), ct.float32)
    low = ct.transpose(ct.load(x, (i, s), (TM, STEP), padding_mode=ZERO))
    high = ct.transpose(ct.load(x, (i, s + half), (TM, STEP), padding_mode=ZERO))
    a = ct.load(words, (s, 0, j), (STEP // 2, 1, TQ), padding_mode=ZERO).reshape((STEP // 2, TQ))
    b = ct.load(words, (s, 1, j), (STEP // 2, 1, TQ), padding_mode=ZERO).reshape((STEP // 2, TQ))
    low_scale = ct.transpose(ct.load(scale, (s, j), (1, TQ), padding_mode=ZERO)) & keep
    high_scale = ct.transpose(ct.load(scale, (s + half, j), (1, TQ), padding_mode=ZERO)) & keep
    pair = ct.bitcast(a, ct.uint16).astype(ct.int32) | (b.astype(ct.int32) << 16)
    first += ct.mma(widen(pair, 0, mask), low, zero) * even(low_scale)
    second += ct.mma(widen(pair, 8, mask), low, zero) * odd(low_scale)
    first += ct.mma(widen(pair, 4, mask), high, zero) * even(high_scale)
    second += ct.mma(widen(pair, 12, mask), high, zero) * odd(high_scale)
    return first, second


@ct.kernel(occupancy=2)
def int4_gemm_kernel(x, words, scale, part, mask, TM: Size, TQ: Size, STEP: Size, SPLIT: Size):
    # words: int16 (K / 4, 2, N / 2), that is rows 2k and 2k + 1, two columns to a word; scale: int32 (K / 128, N / 2).
    # `mask` is no constant, so that it stays in a register.
    z, j, i = ct.bid(0), ct.bid(1), ct.bid(2)
    half = ct.num_tiles(words, axis=0, shape=(STEP // 2, 1, TQ))
    zero = ct.zeros((TQ, TM), ct.float32)
    first, second = zero, zero
    start, stop = z * half // SPLIT, (z + 1) * half // SPLIT
    for turn in range((stop - start + 1) // 2):
        # Two steps a turn: the loads of one are under way while the other computes. A step too many weighs nothing.
        s = start + 2 * turn
        first, second = step(x, words, scale, mask, i, j, s, half, -1, first, second, TM, TQ, STEP)
        keep = ct.where(s + 1 < stop, -1, 0)
        t = min(s + 1, stop - 1)
        first, second = step(x, words, scale, mask, i, j, t, half, keep, first, second, TM, TQ, STEP)
    tile = i * ct.num_blocks(1) + j
    ct.store(part, (z, tile, 0, 0), first.reshape((1, 1, TQ, TM)))
    ct.store(part, (z, tile, 1, 0), second.reshape((1, 1, TQ, TM)))


@ct.kernel
def reduce_kernel(part, out, TM: Size, TQ: Size, CHUNK: Size, SPLIT: Size):
    # out: int32 (M, N / 2), two columns to a word.
    c, j, i = ct.bid(0), ct.bid(1), ct.bid(2)
    tile = i * ct.num_blocks(1) + j
    chunks = TQ // CHUNK
    first = ct.sum(ct.load(part, (0, tile, c, 0), (SPLIT, 1, CHUNK, TM)), 0).reshape((CHUNK, TM))
    second = ct.sum(ct.load(part, (0, tile, c + chunks, 0), (SPLIT, 1, CHUNK, TM)), 0).reshape((CHUNK, TM))
    left = ct.bitcast(first.astype(ct.bfloat16), ct.uint16).astype(ct.int32)
    right = ct.bitcast(second.astype(ct.bfloat16), ct.uint16).astype(ct.int32)
    ct.store(out, (i, j * chunks + c), ct.transpose(left | (right << 16)))


def int4_gemm(x, packed, scale):
    """x (M, K), packed (K / 2, N) uint8, scale (K / 128, N) -> out (M, N) of x's dtype; K is a multiple of 256."""
    m, n, rows = x.shape[0], packed.shape[1], packed.shape[0]
    out = torch.empty(m, n, dtype=x.dtype, device=x.device)
    down, across = ct.cdiv(m, TILE_M), ct.cdiv(n, 2 * PAIRS)
    part = torch.empty(SPLIT, down * across, 2 * PAIRS, TILE_M, dtype=torch.float32, device=x.device)
    words = packed.view(torch.int16).view(rows // 2, 2, n // 2)
    stream = torch.cuda.current_stream()
    arguments = (x, words, scale.view(torch.int32), part, NIBBLES, TILE_M, PAIRS, STEP, SPLIT)
    ct.launch(stream, (SPLIT, across, down), int4_gemm_kernel, arguments)
    arguments = (part, out.view(torch.int32), TILE_M, PAIRS, CHUNK, SPLIT)
    ct.launch(stream, (PAIRS // CHUNK, across, down), reduce_kernel, arguments)
    return out
