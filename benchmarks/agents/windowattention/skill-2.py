"""Sliding-window attention in cuTile.

A block takes the queries of several heads that share their keys, so that its window is short and its tiles of keys are few.
"""

import math

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
TILE_M, TILE_N, PACK, BAND = 128, 64, 8, 4


@ct.kernel(num_worker_warps=8)
def window_attention_kernel(q, k, v, out, scale, window, EACH: Size, P: Size, TQ: Size, TN: Size, D: Size):
    """TQ queries of each of P heads; scale holds log2(e). Rows that see nothing of a tile have a finite top, so weights 0.

    A block walks over many such tiles: the loads of the next one run under the products of this one.
    """
    TM = P * TQ
    limit = ct.uint32(window)
    steps = ct.cdiv(q.shape[2], TQ)
    packs = q.shape[1] // P
    each = packs * q.shape[0]
    # the long windows first, in bands of steps of a head; every second turn walks back, so that blocks get equal work
    block, blocks = ct.bid(0), ct.num_blocks(0)
    turns, rest = steps * each // blocks, steps * each % blocks
    if (block if turns % 2 == 0 else blocks - 1 - block) < rest:
        turns += 1
    for turn in range(turns):
        place = turn * blocks + (block if turn % 2 == 0 else blocks - 1 - block)
        band = place // (each * BAND) * BAND
        height = min(steps - band, BAND)
        step = steps - 1 - band - place % (each * BAND) % height
        head = place % (each * BAND) // height
        heads, batch = head % packs, head // packs
        group = heads * P // EACH
        query = ct.load(q, (batch, heads, step, 0), (1, P, TQ, D), padding_mode=ZERO).reshape((TM, D))
        rows = (step * TQ + ct.arange(TM, dtype=ct.int32) % TQ)[:, None]
        top = ct.full((TM, 1), -1e30, ct.float32)
        total = ct.zeros((TM, 8), ct.float32)  # of every eighth key: in registers of one thread
        mixed = ct.zeros((TM, D), ct.float32)
        first = max(step * TQ - window + 1, 0) // TN
        last = ct.cdiv(min((step + 1) * TQ, k.shape[2]), TN)
        for j in range(first, last):
            keys = ct.load(k, (batch, group, j, 0), (1, 1, TN, D), padding_mode=ZERO).reshape((TN, D))
            score = ct.mma(query, keys.transpose(), ct.zeros((TM, TN), ct.float32)) * scale
            columns = (j * TN + ct.arange(TN, dtype=ct.int32))[None, :]
            score = ct.where((rows - columns).astype(ct.uint32) < limit, score, -math.inf)
            higher = ct.maximum(top, ct.max(score, axis=1, keepdims=True))
            weights = ct.exp2(score - higher, flush_to_zero=True)
            fade = ct.exp2(top - higher, flush_to_zero=True)
            total = total * fade + ct.sum(weights.reshape((TM, TN // 8, 8)), axis=1)
            values = ct.load(v, (batch, group, j, 0), (1, 1, TN, D), padding_mode=ZERO).reshape((TN, D))
            mixed = ct.mma(weights.astype(v.dtype), values, mixed * fade)
            top = higher
        share = ct.truediv(1.0, ct.sum(total, axis=1, keepdims=True), rounding_mode=ct.RoundingMode.APPROX, flush_to_zero=True)
        result = (mixed * share).astype(out.dtype).reshape((1, P, TQ, D))
        ct.store(out, (batch, heads, step, 0), result)


def window_attention(q, k, v, window):
    """q (B, H, S, D), k, v (B, G, S, D) of one dtype, H a multiple of G -> out (B, H, S, D); D is a power of two."""
    batch, heads, length, width = q.shape
    out = torch.empty_like(q)
    each = heads // k.shape[1]
    pack = min(each & -each, PACK)
    places = ct.cdiv(length, TILE_M // pack) * (heads // pack) * batch
    grid = (min(places, torch.cuda.get_device_properties(q.device).multi_processor_count),)
    scale = math.log2(math.e) / math.sqrt(width)
    arguments = (q, k, v, out, scale, window, each, pack, TILE_M // pack, TILE_N, width)
    ct.launch(torch.cuda.current_stream(), grid, window_attention_kernel, arguments)
    return out
