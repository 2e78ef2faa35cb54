"""Attention over paged keys and values in cuTile, before tuning."""

import math

import cuda.tile as ct
import torch

Size = ct.Constant[int]


@ct.kernel
def paged_decode_kernel(q, k, v, table, lengths, out, scale, EACH: Size, T: Size, D: Size):
    head, batch = ct.bid(0), ct.bid(1)
    length = ct.load(lengths, (batch,), (1,)).item()
    query = ct.load(q, (batch, head, 0), (1, 1, D)).reshape((1, D)).astype(ct.float32)
    top = ct.full((1, 1), -1e30, ct.float32)
    total = ct.zeros((1, 1), ct.float32)
    mixed = ct.zeros((1, D), ct.float32)
    for j in range(ct.cdiv(length, T)):
        page = ct.load(table, (batch, j), (1, 1)).item()
        keys = ct.load(k, (page, head // EACH, 0, 0), (1, 1, T, D)).reshape((T, D)).astype(ct.float32)
        score = ct.sum(keys * query, axis=1, keepdims=True) * scale
        seen = (j * T + ct.arange(T, dtype=ct.int32))[:, None] < length
        score = ct.where(seen, score, -1e30)
        higher = ct.maximum(top, ct.max(score, axis=0, keepdims=True))
        weights = ct.where(seen, ct.exp(score - higher), 0.0)
        fade = ct.exp(top - higher)
        values = ct.load(v, (page, head // EACH, 0, 0), (1, 1, T, D)).reshape((T, D)).astype(ct.float32)
        total = total * fade + ct.sum(weights, axis=0, keepdims=True)
        mixed = mixed * fade + ct.sum(weights * values, axis=0, keepdims=True)
        top = higher
    ct.store(out, (batch, head, 0), (mixed / total).astype(out.dtype).reshape((1, 1, D)))


def paged_decode(q, k, v, table, lengths):
    """q (B, H, D), k, v (P, G, T, D) of one dtype, H a multiple of G, table (B, N) and lengths (B,) of int32 -> out
    (B, H, D); T and D are powers of two."""
    batch, heads, width = q.shape
    out = torch.empty_like(q)
    each = heads // k.shape[1]
    arguments = (q, k, v, table, lengths, out, 1 / math.sqrt(width), each, k.shape[2], width)
    ct.launch(torch.cuda.current_stream(), (heads, batch), paged_decode_kernel, arguments)
    return out
