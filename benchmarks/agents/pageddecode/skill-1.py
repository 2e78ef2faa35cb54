"""Attention over paged keys and values in cuTile: shares of each sequence, then their sum."""

import math

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.kernel(occupancy=2)
def paged_part_kernel(q, k, v, table, lengths, part, sums, scale, shares, E: Size, PAGES: Size, T: Size, D: Size):
    """One block: the E queries of a key head over one of the equal shares of a sequence, PAGES pages a step.

    Tokens are the rows of both products, so that keys and values feed HGMMA. Page numbers come one by one, unchecked:
    then the warp that loads reads them itself, and runs ahead of those that compute. The latencies share the buffers
    out between keys and values, evenly."""
    group, share, batch = ct.bid(0), ct.bid(1), ct.bid(2)
    length = ct.load(lengths, (batch,), (1,)).item()
    span: Size = PAGES * T
    steps = ct.cdiv(length, span)
    each = ct.cdiv(steps, shares)
    first = share * each
    last = min(first + each, steps)
    if first >= last:
        return
    query = ct.load(q, (batch, group, 0, 0), (1, 1, E, D), padding_mode=ZERO).reshape((E, D))
    slot = ct.arange(PAGES, dtype=ct.int32)
    final = (length - 1) // T
    top = ct.full((1, E), -1e30, ct.float32)
    total = ct.zeros((span, E), ct.float32)
    mixed = ct.zeros((D, E), ct.float32)
    for j in range(first, last):
        pages = ct.zeros((PAGES,), ct.int32)
        for i in ct.static_iter(range(PAGES)):
            place = (batch, min(j * PAGES + i, final))
            pages = ct.where(slot == i, ct.load(table, place, (1, 1), check_bounds=False, allow_tma=False).item(), pages)
        where = (pages, ct.Slice(group, 1), ct.Slice(0, T), ct.Slice(0, D))
        keys = ct.load_advanced_indexing(k, where, padding_mode=ZERO, latency=8).reshape((span, D))
        values = ct.load_advanced_indexing(v, where, padding_mode=ZERO, latency=1).reshape((span, D))
        score = ct.mma(keys, query.transpose(), ct.zeros((span, E), ct.float32)) * scale
        seen = (j * span + ct.arange(span, dtype=ct.int32))[:, None] < length
        score = ct.where(seen, score, -1e30)
        higher = ct.maximum(top, ct.max(score, axis=0, keepdims=True))
        weights = ct.exp2(score - higher, flush_to_zero=True)
        fade = ct.exp2(top - higher, flush_to_zero=True)
        total = total * fade + weights
        mixed = ct.mma(values.transpose(), weights.astype(v.dtype), mixed * fade)
        top = higher
    ct.store(part, (batch, group, share, 0, 0), mixed.transpose().reshape((1, 1, 1, E, D)))
    ct.store(sums, (batch, group, share, 0, 0), top.reshape((1, 1, 1, 1, E)))
    ct.store(sums, (batch, group, share, 1, 0), ct.sum(total, axis=0).reshape((1, 1, 1, 1, E)))


@ct.kernel(occupancy=8)
def merge_kernel(part, sums, out, lengths, shares, SPAN: Size, S: Size, D: Size):
    """One block: a head's shares, S at most, into its row."""
    head, group, batch = ct.bid(0), ct.bid(1), ct.bid(2)
    tops = ct.load(sums, (batch, group, 0, 0, head), (1, 1, S, 1, 1), padding_mode=ZERO, allow_tma=False)
    totals = ct.load(sums, (batch, group, 0, 1, head), (1, 1, S, 1, 1), padding_mode=ZERO, allow_tma=False)
    parts = ct.load(part, (batch, group, 0, head, 0), (1, 1, S, 1, D), padding_mode=ZERO, allow_tma=False)
    steps = ct.cdiv(ct.load(lengths, (batch,), (1,)).item(), SPAN)
    live = ct.arange(S, dtype=ct.int32)[:, None] * ct.cdiv(steps, shares) < steps
    tops = ct.where(live, tops.reshape((S, 1)), -1e30)
    fade = ct.exp2(tops - ct.max(tops, axis=0, keepdims=True))
    total = ct.sum(ct.where(live, totals.reshape((S, 1)) * fade, 0.0), axis=0, keepdims=True)
    mixed = ct.sum(ct.where(live, parts.reshape((S, D)) * fade, 0.0), axis=0, keepdims=True)
    result = (mixed * (1.0 / total)).astype(out.dtype).reshape((1, 1, 1, D))
    ct.store(out, (batch, group, head, 0), result, allow_tma=False)


def paged_decode(q, k, v, table, lengths):
    """q (B, H, D), k, v (P, G, T, D) of one dtype, H a multiple of G, table (B, N) and lengths (B,) of int32 -> out
    (B, H, D); T and D are powers of two."""
    batch, heads, width = q.shape
    groups, size = k.shape[1], k.shape[2]
    each = heads // groups
    rows = max(8, 1 << (each - 1).bit_length())
    pages = max(1, 64 // size)
    span = pages * size
    steps = ct.cdiv(table.shape[1] * size, span)
    shares = max(1, min(steps // 2, 1024 // (batch * groups), 32))
    out = torch.empty_like(q)
    part = torch.empty((batch, groups, shares, each, width), dtype=torch.float32, device=q.device)
    sums = torch.empty((batch, groups, shares, 2, each), dtype=torch.float32, device=q.device)
    stream = torch.cuda.current_stream()
    scale = math.log2(math.e) / math.sqrt(width)
    queries, result = q.view(batch, groups, each, width), out.view(batch, groups, each, width)
    arguments = (queries, k, v, table, lengths, part, sums, scale, shares, rows, pages, size, width)
    ct.launch(stream, (groups, shares, batch), paged_part_kernel, arguments)
    arguments = (part, sums, result, lengths, shares, span, 1 << (shares - 1).bit_length(), width)
    ct.launch(stream, (each, groups, batch), merge_kernel, arguments)
    return out
