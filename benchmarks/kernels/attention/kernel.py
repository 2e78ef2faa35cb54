"""Attention in cuTile with a running softmax; the weights are rounded to the inputs' dtype before they meet v."""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
LOWEST = -3.0e38
TILE_S, TILE_L = 32, 32


@ct.kernel
def attention_kernel(q, k, v, out, scale, length, TS: Size, TL: Size, D: Size):
    head, block = ct.bid(0), ct.bid(1)
    mine = ct.load(q, index=(head, block, 0), shape=(1, TS, D), padding_mode=ZERO).reshape((TS, D))
    top = ct.full((TS, 1), LOWEST, ct.float32)
    total = ct.zeros((TS, 1), ct.float32)
    mixed = ct.zeros((TS, D), ct.float32)
    for step in range(ct.num_tiles(k, axis=1, shape=(1, TL, D))):
        keys = ct.load(k, index=(head, step, 0), shape=(1, TL, D), padding_mode=ZERO).reshape((TL, D))
        values = ct.load(v, index=(head, step, 0), shape=(1, TL, D), padding_mode=ZERO).reshape((TL, D))
        scores = ct.mma(mine, ct.transpose(keys), ct.zeros((TS, TL), ct.float32)) * scale
        places = step * TL + ct.arange(TL, dtype=ct.int32)
        scores = ct.where((places < length)[None, :], scores, LOWEST)
        higher = ct.maximum(top, ct.max(scores, axis=1, keepdims=True))
        weights = ct.exp(scores - higher)
        fade = ct.exp(top - higher)
        total = total * fade + ct.sum(weights, axis=1, keepdims=True)
        mixed = ct.mma(weights.astype(v.dtype), values, mixed * fade)
        top = higher
    result = (mixed / total).astype(out.dtype).reshape((1, TS, D))
    ct.store(out, index=(head, block, 0), tile=result)


def attention(q, k, v):
    heads, length, width = q.shape
    out = torch.empty_like(q)
    grid = (heads, ct.cdiv(length, TILE_S))
    arguments = (q, k, v, out, width**-0.5, k.shape[1], TILE_S, TILE_L, width)
    ct.launch(torch.cuda.current_stream(), grid, attention_kernel, arguments)
    return out
