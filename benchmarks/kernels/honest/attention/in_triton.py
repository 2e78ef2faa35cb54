"""Attention in Triton with a running softmax: one program for each 16 queries of a head."""

import torch
import triton
import triton.language as tl


@triton.jit
def attention_kernel(q, k, v, out, S, L, scale, D: tl.constexpr, TS: tl.constexpr, TL: tl.constexpr):
    head = tl.program_id(0)
    rows = tl.program_id(1) * TS + tl.arange(0, TS)
    columns = tl.arange(0, D)
    mine = (head * S + rows)[:, None] * D + columns[None, :]
    queries = tl.load(q + mine, mask=(rows < S)[:, None], other=0.0)
    top = tl.full((TS,), -3.0e38, tl.float32)
    total = tl.zeros((TS,), tl.float32)
    mixed = tl.zeros((TS, D), tl.float32)
    for start in range(0, L, TL):
        places = start + tl.arange(0, TL)
        inside = places < L
        theirs = (head * L + places)[:, None] * D + columns[None, :]
        keys = tl.load(k + theirs, mask=inside[:, None], other=0.0)
        values = tl.load(v + theirs, mask=inside[:, None], other=0.0)
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
        scores = tl.where(inside[None, :], scores, -3.0e38)
        higher = tl.maximum(top, tl.max(scores, axis=1))
        weights = tl.exp(scores - higher[:, None])
        fade = tl.exp(top - higher)
        total = total * fade + tl.sum(weights, axis=1)
        mixed = mixed * fade[:, None] + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        top = higher
    result = mixed / total[:, None]
    tl.store(out + mine, result.to(out.dtype.element_ty), mask=(rows < S)[:, None])


def attention(q, k, v):
    heads, length, width = q.shape
    out = torch.empty_like(q)
    grid = (heads, triton.cdiv(length, 16))
    attention_kernel[grid](q, k, v, out, length, k.shape[1], width**-0.5, D=width, TS=16, TL=32)
    return out
