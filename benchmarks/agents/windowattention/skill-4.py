"""Sliding-window attention in cuTile: blocks that walk, heads that share keys side by side in a block.

The first kernel sums 2^score without subtracting the row's maximum, which is as exact while the sums stay far from the
limits of float32 and of the weights' dtype; a block that finds a sum out of range raises its flag, and the second kernel
does that block's tiles again, with the running maximum.
"""

import math

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
ROWS, TILE_N = 128, 64


@ct.kernel(num_worker_warps=8)
def unshifted_kernel(
    q, k, v, out, flags, scale, nought, least, most, window, EACH: Size, HB: Size, TM: Size, TN: Size, D: Size
):
    length = q.shape[2]
    parts = q.shape[1] // HB
    steps = ct.cdiv(length, TM)
    pairs = parts * q.shape[0]
    odd = ct.zeros((HB * TM, 1), ct.int32)
    for tile in range(ct.bid(0), steps * pairs, ct.num_blocks(0)):
        step = steps - 1 - tile // pairs
        pair = tile % pairs
        batch, part = pair // parts, pair % parts
        group = part * HB // EACH
        query = ct.load(q, (batch, part, step, 0), (1, HB, TM, D), padding_mode=ZERO).reshape((HB * TM, D))
        places = ct.broadcast_to(ct.arange(TM, dtype=ct.int32)[None, :], (HB, TM)).reshape((HB * TM, 1))
        rows = step * TM + places
        total = ct.zeros((HB * TM, 8), ct.float32)
        # nought is 0.0: of ct.zeros the compiler makes 64 selects a step and spills
        mixed = ct.full((HB * TM, D), nought, ct.float32)
        begin = max(step * TM - window + 1, 0) // TN
        end = ct.cdiv(min((step + 1) * TM, length), TN)
        for j in range(begin, end):
            keys = ct.load(k, (batch, group, j, 0), (1, 1, TN, D), padding_mode=ZERO).reshape((TN, D))
            score = ct.mma(query, keys.transpose(), ct.zeros((HB * TM, TN), ct.float32)) * scale
            columns = (j * TN + ct.arange(TN, dtype=ct.int32))[None, :]
            seen = (rows - columns).astype(ct.uint32) < ct.uint32(window)
            weights = ct.exp2(ct.where(seen, score, -math.inf), flush_to_zero=True)
            total = total + ct.sum(weights.reshape((HB * TM, TN // 8, 8)), axis=1)
            values = ct.load(v, (batch, group, j, 0), (1, 1, TN, D), padding_mode=ZERO).reshape((TN, D))
            mixed = ct.mma(weights.astype(v.dtype), values, mixed)
        sums = ct.sum(total, axis=1, keepdims=True)
        fits = (sums > least) & (sums < most)
        odd = ct.where(fits | (rows >= length), odd, 1)
        result = ct.truediv(mixed, sums, flush_to_zero=True, rounding_mode=ct.RoundingMode.APPROX)
        ct.store(out, (batch, part, step, 0), result.astype(out.dtype).reshape((1, HB, TM, D)))
    ct.store(flags, (ct.bid(0),), ct.max(odd, axis=0), allow_tma=False)


@ct.kernel(num_worker_warps=8)
def shifted_kernel(q, k, v, out, flags, scale, window, EACH: Size, HB: Size, TM: Size, TN: Size, D: Size):
    ct.grid_dependency_control_wait()
    length = q.shape[2]
    parts = q.shape[1] // HB
    steps = ct.cdiv(length, TM)
    pairs = parts * q.shape[0]
    if ct.load(flags, (ct.bid(0),), (1,), allow_tma=False).item() != 1:
        return
    for tile in range(ct.bid(0), steps * pairs, ct.num_blocks(0)):
        step = steps - 1 - tile // pairs
        pair = tile % pairs
        batch, part = pair // parts, pair % parts
        group = part * HB // EACH
        query = ct.load(q, (batch, part, step, 0), (1, HB, TM, D), padding_mode=ZERO).reshape((HB * TM, D))
        places = ct.broadcast_to(ct.arange(TM, dtype=ct.int32)[None, :], (HB, TM)).reshape((HB * TM, 1))
        rows = step * TM + places
        top = ct.full((HB * TM, 1), -1e30, ct.float32)
        total = ct.zeros((HB * TM, 1), ct.float32)
        mixed = ct.zeros((HB * TM, D), ct.float32)
        begin = max(step * TM - window + 1, 0) // TN
        end = ct.cdiv(min((step + 1) * TM, length), TN)
        for j in range(begin, end):
            keys = ct.load(k, (batch, group, j, 0), (1, 1, TN, D), padding_mode=ZERO).reshape((TN, D))
            score = ct.mma(query, keys.transpose(), ct.zeros((HB * TM, TN), ct.float32)) * scale
            columns = (j * TN + ct.arange(TN, dtype=ct.int32))[None, :]
            seen = (rows - columns).astype(ct.uint32) < ct.uint32(window)
            score = ct.where(seen, score, -math.inf)
            higher = ct.maximum(top, ct.max(score, axis=1, keepdims=True))
            weights = ct.exp2(score - higher, flush_to_zero=True)
            fade = ct.exp2(top - higher, flush_to_zero=True)
            total = total * fade + ct.sum(weights, axis=1, keepdims=True)
            values = ct.load(v, (batch, group, j, 0), (1, 1, TN, D), padding_mode=ZERO).reshape((TN, D))
            mixed = ct.mma(weights.astype(v.dtype), values, mixed * fade)
            top = higher
        result = ct.truediv(mixed, total, flush_to_zero=True, rounding_mode=ct.RoundingMode.APPROX)
        ct.store(out, (batch, part, step, 0), result.astype(out.dtype).reshape((1, HB, TM, D)))


def window_attention(q, k, v, window):
    """q (B, H, S, D), k, v (B, G, S, D) of one dtype, H a multiple of G -> out (B, H, S, D); D is a power of two."""
    batch, heads, length, width = q.shape
    out = torch.empty_like(q)
    each = heads // k.shape[1]
    beside = math.gcd(each, 4)
    tile = ROWS // beside
    tiles = ct.cdiv(length, tile) * (heads // beside) * batch
    blocks = min(tiles, torch.cuda.get_device_properties(q.device).multi_processor_count)
    flags = torch.empty(blocks, dtype=torch.int32, device=q.device)
    scale = math.log2(math.e) / math.sqrt(width)
    least, most = (2.0**-6, 2.0**15) if q.dtype == torch.float16 else (2.0**-20, 2.0**24)
    sizes = (window, each, beside, tile, TILE_N, width)
    stream = torch.cuda.current_stream()
    arguments = (q, k, v, out, flags, scale, 0.0, least, most, *sizes)
    ct.launch(stream, (blocks,), unshifted_kernel, arguments)
    arguments = (q, k, v, out, flags, scale, *sizes)
    ct.launch(stream, (blocks,), shifted_kernel, arguments, programmatic_dependent_launch=True)
    return out
