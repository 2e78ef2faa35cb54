"""Attention forward in cuTile, before tuning: one block takes TILE_M queries of a head past all its keys."""

import math

import cuda.tile as ct
import torch

Size, Flag = ct.Constant[int], ct.Constant[bool]
ZERO = ct.PaddingMode.ZERO
LOG2E = math.log2(math.e)
TILE_M, TILE_N = 64, 64


@ct.kernel
def attention_kernel(q, k, v, out, scale, TM: Size, TN: Size, D: Size, RAGGED: Flag):
    step, head, batch = ct.bid(0), ct.bid(1), ct.bid(2)
    query = ct.load(q, index=(batch, head, step, 0), shape=(1, 1, TM, D), padding_mode=ZERO).reshape((TM, D))
    top = ct.full((TM, 1), -math.inf, ct.float32)
    total = ct.zeros((TM, 1), ct.float32)
    mixed = ct.zeros((TM, D), ct.float32)
    for j in range(ct.cdiv(k.shape[2], TN)):
        keys = ct.load(k, index=(batch, head, j, 0), shape=(1, 1, TN, D), padding_mode=ZERO).reshape((TN, D))
        score = ct.mma(query, keys.transpose(), ct.zeros((TM, TN), ct.float32)) * scale
        if RAGGED:
            columns = j * TN + ct.arange(TN, dtype=ct.int32)[None, :]
            score = ct.where(columns < k.shape[2], score, -math.inf)
        higher = ct.maximum(top, ct.max(score, axis=1, keepdims=True))
        weights = ct.exp2(score - higher)
        fade = ct.exp2(top - higher)
        total = total * fade + ct.sum(weights, axis=1, keepdims=True)
        values = ct.load(v, index=(batch, head, j, 0), shape=(1, 1, TN, D), padding_mode=ZERO).reshape((TN, D))
        mixed = ct.mma(weights.astype(v.dtype), values, mixed * fade)
        top = higher
    result = (mixed / total).astype(out.dtype).reshape((1, 1, TM, D))
    ct.store(out, index=(batch, head, step, 0), tile=result)


def attention(q, k, v):
    """q, k, v (B, H, S, D) of one dtype -> out (B, H, S, D); D is a power of two."""
    batch, heads, length, width = q.shape
    out = torch.empty_like(q)
    grid = (ct.cdiv(length, TILE_M), heads, batch)
    ragged = k.shape[2] % TILE_N != 0
    arguments = (q, k, v, out, LOG2E / math.sqrt(width), TILE_M, TILE_N, width, ragged)
    ct.launch(torch.cuda.current_stream(), grid, attention_kernel, arguments)
    return out
