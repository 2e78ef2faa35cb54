"""Sliding-window attention in cuTile, before tuning."""

import math

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
TILE_M, TILE_N = 64, 32


@ct.kernel
def window_attention_kernel(q, k, v, out, scale, window, EACH: Size, TM: Size, TN: Size, D: Size):
    step, head, batch = ct.bid(0), ct.bid(1), ct.bid(2)
    query = ct.load(q, (batch, head, step, 0), (1, 1, TM, D), padding_mode=ZERO).reshape((TM, D))
    rows = (step * TM + ct.arange(TM, dtype=ct.int32))[:, None]
    top = ct.full((TM, 1), -1e30, ct.float32)
    total = ct.zeros((TM, 1), ct.float32)
    mixed = ct.zeros((TM, D), ct.float32)
    for j in range(ct.cdiv((step + 1) * TM, TN)):
        keys = ct.load(k, (batch, head // EACH, j, 0), (1, 1, TN, D), padding_mode=ZERO).reshape((TN, D))
        score = ct.mma(query, keys.transpose(), ct.zeros((TM, TN), ct.float32)) * scale
        columns = (j * TN + ct.arange(TN, dtype=ct.int32))[None, :]
        seen = (columns <= rows) & (columns > rows - window)
        score = ct.where(seen, score, -1e30)
        higher = ct.maximum(top, ct.max(score, axis=1, keepdims=True))
        weights = ct.where(seen, ct.exp(score - higher), 0.0)
        fade = ct.exp(top - higher)
        total = total * fade + ct.sum(weights, axis=1, keepdims=True)
        values = ct.load(v, (batch, head // EACH, j, 0), (1, 1, TN, D), padding_mode=ZERO).reshape((TN, D))
        mixed = ct.mma(weights.astype(v.dtype), values, mixed * fade)
        top = higher
    result = (mixed / total).astype(out.dtype).reshape((1, 1, TM, D))
    ct.store(out, (batch, head, step, 0), result)


def window_attention(q, k, v, window):
    """q (B, H, S, D), k, v (B, G, S, D) of one dtype, H a multiple of G -> out (B, H, S, D); D is a power of two."""
    batch, heads, length, width = q.shape
    out = torch.empty_like(q)
    grid = (ct.cdiv(length, TILE_M), heads, batch)
    each = heads // k.shape[1]
    arguments = (q, k, v, out, 1 / math.sqrt(width), window, each, TILE_M, TILE_N, width)
    ct.launch(torch.cuda.current_stream(), grid, window_attention_kernel, arguments)
    return out
