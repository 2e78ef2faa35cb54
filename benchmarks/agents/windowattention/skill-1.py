"""Sliding-window attention in cuTile: a loop without branches over tiles of 64 keys, which the compiler pipelines."""

import math

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
TILE_M, TILE_N = 128, 64


@ct.kernel(num_worker_warps=8)
def window_attention_kernel(q, k, v, out, scale, window, EACH: Size, TM: Size, TN: Size, D: Size):
    # Heads that share keys run together; blocks with the shortest windows (the first queries) come last.
    head, batch, step = ct.bid(0), ct.bid(1), ct.num_blocks(2) - 1 - ct.bid(2)
    query = ct.load(q, (batch, head, step, 0), (1, 1, TM, D), padding_mode=ZERO).reshape((TM, D))
    rows = (step * TM + ct.arange(TM, dtype=ct.int32))[:, None]
    top = ct.full((TM, 1), -3e38, ct.float32)
    total = ct.zeros((TM, 1), ct.float32)
    mixed = ct.zeros((TM, D), ct.float32)
    # As unsigned numbers, rows - columns < window says both: not after the query, and not too far before it.
    reach = ct.full((1, 1), window, ct.int32).astype(ct.uint32)
    first = max(step * TM - window + 1, 0) // TN
    for j in range(first, ct.cdiv(min((step + 1) * TM, k.shape[2]), TN)):
        keys = ct.load(k, (batch, head // EACH, j, 0), (1, 1, TN, D), padding_mode=ZERO).reshape((TN, D))
        score = ct.mma(query, keys.transpose(), ct.zeros((TM, TN), ct.float32))
        columns = (j * TN + ct.arange(TN, dtype=ct.int32))[None, :]
        score = ct.where((rows - columns).astype(ct.uint32) < reach, score, -math.inf)
        # Subtract, then scale: as one FMA, score * scale - higher overflows exp2 where scores are huge.
        higher = ct.maximum(top, ct.max(score, axis=1, keepdims=True))
        weights = ct.exp2((score - higher) * scale, flush_to_zero=True)
        fade = ct.exp2((top - higher) * scale, flush_to_zero=True)
        total = total * fade + ct.sum(weights, axis=1, keepdims=True)
        values = ct.load(v, (batch, head // EACH, j, 0), (1, 1, TN, D), padding_mode=ZERO).reshape((TN, D))
        mixed = ct.mma(weights.astype(v.dtype), values, mixed * fade)
        top = higher
    result = (mixed * (1.0 / ct.maximum(total, 1e-30))).astype(out.dtype).reshape((1, 1, TM, D))
    ct.store(out, (batch, head, step, 0), result)


def window_attention(q, k, v, window):
    """q (B, H, S, D), k, v (B, G, S, D) of one dtype, H a multiple of G -> out (B, H, S, D); D is a power of two."""
    batch, heads, length, width = q.shape
    out = torch.empty_like(q)
    grid = (heads, batch, ct.cdiv(length, TILE_M))
    each = heads // k.shape[1]
    arguments = (q, k, v, out, math.log2(math.e) / math.sqrt(width), window, each, TILE_M, TILE_N, width)
    ct.launch(torch.cuda.current_stream(), grid, window_attention_kernel, arguments)
    return out
