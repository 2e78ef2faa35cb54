"""Rotary embedding in cuTile, before tuning: one block turns TILE_S positions of one head, in place."""

import cuda.tile as ct
import torch

ConstInt = ct.Constant[int]

TILE_S = 64


@ct.kernel
def rope_kernel(x_in, x_out, cos, sin, TS: ConstInt, HALF: ConstInt):
    head, step = ct.bid(0), ct.bid(1)
    batch, head = head // x_in.shape[1], head % x_in.shape[1]
    shape, zero = (1, 1, TS, HALF), ct.PaddingMode.ZERO
    first = ct.load(x_in, index=(batch, head, step, 0), shape=shape, padding_mode=zero).astype(ct.float32)
    second = ct.load(x_in, index=(batch, head, step, 1), shape=shape, padding_mode=zero).astype(ct.float32)
    c = ct.load(cos, index=(step, 0), shape=(TS, HALF), padding_mode=zero).astype(ct.float32).reshape(shape)
    s = ct.load(sin, index=(step, 0), shape=(TS, HALF), padding_mode=zero).astype(ct.float32).reshape(shape)
    ct.store(x_out, index=(batch, head, step, 0), tile=(first * c - second * s).astype(x_out.dtype))
    ct.store(x_out, index=(batch, head, step, 1), tile=(second * c + first * s).astype(x_out.dtype))


def rope(q, k, cos, sin):
    """Turn q (B, H, S, D) and k (B, KV, S, D) in place by the angles of cos and sin (S, D/2)."""
    for x in (q, k):
        batch, heads, length, width = x.shape
        grid = (batch * heads, ct.cdiv(length, TILE_S))
        ct.launch(torch.cuda.current_stream(), grid, rope_kernel, (x, x, cos, sin, TILE_S, width // 2))
