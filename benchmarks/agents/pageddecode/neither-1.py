"""Attention over paged keys and values in cuTile: each sequence is cut into parts that run at once, all query heads of
a group share one pass over its keys and values, and a second kernel merges the parts."""

import math

import cuda.tile as ct
import torch

Size = ct.Constant[int]


@ct.kernel(occupancy=3)
def paged_decode_kernel(
    q, k, v, table, lengths, sums, marks, scale, EACH: Size, M: Size, T: Size, P: Size, D: Size, S: Size
):
    """sums (B, H, S, D) and marks (B, H, S, 2): weighted values, greatest score and total weight of one part."""
    group, part, batch = ct.bid(0), ct.bid(1), ct.bid(2)
    ct.grid_dependency_control_launch_dependents()
    length = ct.load(lengths, (batch,), (1,)).item()
    steps = ct.cdiv(ct.cdiv(length, T), P)
    share = ct.cdiv(steps, S)
    row = ct.arange(M, dtype=ct.int32)[None, :]
    column = ct.arange(D, dtype=ct.int32)[:, None]
    query = ct.gather(q, (batch, group * EACH + ct.minimum(row, EACH - 1), column), check_bounds=False)
    place = ct.arange(P * T, dtype=ct.int32)[:, None]
    top = ct.full((1, M), -1e30, ct.float32)
    total = ct.zeros((P * T, M), ct.float32)
    mixed = ct.zeros((D, M), ct.float32)
    for j in range(part * share, min(part * share + share, steps)):
        page = ct.load(table, (batch, j), (1, P), padding_mode=ct.PaddingMode.ZERO).reshape((P,))
        where = (page, ct.Slice(group, 1), ct.Slice(0, T), ct.Slice(0, D))
        keys = ct.load_advanced_indexing(k, where).reshape((P * T, D))
        values = ct.load_advanced_indexing(v, where).reshape((P * T, D))
        score = ct.mma(keys, query, ct.zeros((P * T, M), ct.float32)) * scale
        score = ct.where(j * (P * T) + place < length, score, -1e30)
        higher = ct.maximum(top, ct.max(score, axis=0, keepdims=True))
        weights = ct.exp2(score - higher, flush_to_zero=True)
        fade = ct.exp2(top - higher, flush_to_zero=True)
        total = total * fade + weights
        mixed = ct.mma(values.transpose(), weights.astype(values.dtype), mixed * fade)
        top = higher
    head, own = group * EACH + row, row < EACH
    ct.scatter(sums, (batch, head, part, column), mixed, mask=own, check_bounds=False)
    ct.scatter(marks, (batch, head, part, 0), top, mask=own, check_bounds=False)
    ct.scatter(marks, (batch, head, part, 1), ct.sum(total, axis=0, keepdims=True), mask=own, check_bounds=False)


@ct.kernel
def merge_kernel(sums, marks, out, ROWS: Size, S: Size, D: Size):
    """sums (R, S, D), marks (R, S, 2) -> out (R, D)."""
    first = ct.bid(0)
    ct.grid_dependency_control_wait()
    row = (first * ROWS + ct.arange(ROWS, dtype=ct.int32))[:, None]
    part = ct.arange(S, dtype=ct.int32)[None, :]
    column = ct.arange(D, dtype=ct.int32)[None, None, :]
    top = ct.gather(marks, (row, part, 0))
    total = ct.gather(marks, (row, part, 1), padding_value=1.0)
    mixed = ct.gather(sums, (row[:, :, None], part[:, :, None], column))
    factor = ct.exp2(top - ct.max(top, axis=1, keepdims=True))
    total = ct.sum(total * factor, axis=1, keepdims=True)
    mixed = ct.sum(mixed * factor[:, :, None], axis=1)
    ct.scatter(out, (row, column.reshape((1, D))), (mixed / total).astype(out.dtype))


def paged_decode(q, k, v, table, lengths):
    """q (B, H, D), k, v (P, G, T, D) of one dtype, H a multiple of G, table (B, N) and lengths (B,) of int32 -> out
    (B, H, D); T and D are powers of two."""
    batch, heads, width = q.shape
    groups, size = k.shape[1:3]
    each = heads // groups
    padded = max(8, 1 << (each - 1).bit_length())
    pages = max(1, 64 // size)
    parts, tokens = 1, table.shape[1] * size
    while parts * batch * groups < 2000 and tokens // (2 * parts) >= 128:
        parts *= 2
    sums = torch.empty((batch, heads, parts, width), dtype=torch.float32, device=q.device)
    marks = torch.empty((batch, heads, parts, 2), dtype=torch.float32, device=q.device)
    stream = torch.cuda.current_stream()
    scale = math.log2(math.e) / math.sqrt(width)
    arguments = (q, k, v, table, lengths, sums, marks, scale, each, padded, size, pages, width, parts)
    ct.launch(stream, (groups, parts, batch), paged_decode_kernel, arguments)
    out = torch.empty((batch, heads, width), dtype=q.dtype, device=q.device)
    rows, at_once = batch * heads, 4
    arguments = (sums.view(rows, parts, width), marks.view(rows, parts, 2), out.view(rows, width), at_once, parts, width)
    ct.launch(stream, (-(-rows // at_once),), merge_kernel, arguments, programmatic_dependent_launch=True)
    return out
