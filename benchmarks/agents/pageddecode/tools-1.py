"""Attention over paged keys and values in cuTile: each block takes one group of heads and one part of a sequence, and
a second kernel puts the parts together."""

import math

import cuda.tile as ct
import torch

Size = ct.Constant[int]
LOG2E = 1.4426950408889634


@ct.kernel(occupancy=2)
def paged_part_kernel(
    q, k, v, table, lengths, mixes, marks, scale, M: Size, D: Size, R: Size, CUT: Size, PIECES: Size, STEPS: Size
):
    """Attention to one part of a sequence: STEPS steps of PIECES pieces of R tokens, CUT of them to a page."""
    group, part, batch = ct.bid(0), ct.bid(1), ct.bid(2)
    ct.grid_dependency_control_launch_dependents()
    length = ct.load(lengths, (batch,), (1,)).item()
    first = part * (STEPS * PIECES)
    ROWS = PIECES * R
    if first * R < length:
        last = ct.cdiv(length, R) - 1
        steps = min(ct.cdiv(length - first * R, ROWS), STEPS)
        query = ct.load(q, (batch, group, 0, 0), (1, 1, M, D), padding_mode=ct.PaddingMode.ZERO).reshape((M, D))
        turned = ct.transpose(query)
        top = ct.full((1, M), -1e30, ct.float32)
        sums = ct.zeros((ROWS, M), ct.float32)
        mixed = ct.zeros((D, M), ct.float32)
        rows = ct.arange(ROWS, dtype=ct.int32)[:, None]
        places = ct.arange(PIECES, dtype=ct.int32)
        for j in range(steps):
            start = first + j * PIECES
            pages = ct.gather(table, (batch, ct.minimum(start + places, last) // CUT), check_bounds=False)
            where = (pages, ct.Slice(group, 1), ct.Slice(start % CUT * R, R), ct.Slice(0, D))
            keys = ct.load_advanced_indexing(k, where).reshape((ROWS, D))
            values = ct.load_advanced_indexing(v, where).reshape((ROWS, D))
            score = ct.mma(keys, turned, ct.zeros((ROWS, M), ct.float32)) * scale
            score = ct.where(start * R + rows < length, score, -1e30)
            higher = ct.maximum(top, ct.max(score, axis=0, keepdims=True))
            weights = ct.exp2(score - higher)
            fade = ct.exp2(top - higher)
            sums = sums * fade + weights
            mixed = ct.mma(ct.transpose(values), weights.astype(values.dtype), mixed * fade)
            top = higher
        total = ct.sum(sums, axis=0, keepdims=True)
        mixed = ct.transpose(mixed * (1.0 / total))
        ct.store(mixes, (batch, group, part, 0, 0), mixed.reshape((1, 1, 1, M, D)))
        ct.store(marks, (batch, group, part, 0), (top + ct.log2(total)).reshape((1, 1, 1, M)))


@ct.kernel(occupancy=8)
def paged_join_kernel(mixes, marks, lengths, out, EACH: Size, D: Size, PARTS: Size, P: Size, SPAN: Size):
    """The mean of the parts of a sequence, for one head; a mark is the binary logarithm of a part's weight."""
    head, batch = ct.bid(0), ct.bid(1)
    group, row = head // EACH, head % EACH
    length = ct.load(lengths, (batch,), (1,)).item()
    parts = ct.cdiv(length, SPAN)
    ct.grid_dependency_control_wait()
    every = ct.arange(PARTS, dtype=ct.int32)
    marked = ct.gather(marks, (batch, group, every, row), mask=every < parts, padding_value=-1e30)
    highest = ct.max(marked, axis=0, keepdims=True)
    total = ct.sum(ct.exp2(marked - highest), axis=0, keepdims=True)
    columns = ct.arange(D, dtype=ct.int32)[None, :]
    mixed = ct.zeros((P, D), ct.float32)
    for j in range(ct.cdiv(parts, P)):
        some = j * P + ct.arange(P, dtype=ct.int32)
        seen = some < parts
        mark = ct.gather(marks, (batch, group, some, row), mask=seen, padding_value=-1e30)
        weight = ct.exp2(mark - highest)[:, None]
        mix = ct.gather(mixes, (batch, group, some[:, None], row, columns), mask=seen[:, None], padding_value=0.0)
        mixed += weight * mix
    result = ct.sum(mixed, axis=0) / total
    ct.store(out, (batch, head, 0), result.astype(out.dtype).reshape((1, 1, D)))


def paged_decode(q, k, v, table, lengths):
    """q (B, H, D), k, v (P, G, T, D) of one dtype, H a multiple of G, table (B, N) and lengths (B,) of int32 -> out
    (B, H, D); T and D are powers of two."""
    batch, heads, width = q.shape
    groups, page = k.shape[1], k.shape[2]
    each = heads // groups
    rows = 128 if width * k.element_size() <= 256 else 64
    piece = min(page, rows)
    cut, pieces = page // piece, rows // piece
    # About 1024 blocks or more, of at most 4 steps each.
    steps = min(4, max(1, table.shape[1] * page * groups * batch // (rows * 1024)))
    span = rows * steps
    parts = -(-table.shape[1] * page // span)
    out = torch.empty_like(q)
    mixes = torch.empty((batch, groups, parts, each, width), dtype=torch.float32, device=q.device)
    marks = torch.empty((batch, groups, parts, each), dtype=torch.float32, device=q.device)
    stream = torch.cuda.current_stream()
    scale = LOG2E / math.sqrt(width)
    padded = max(8, 1 << (each - 1).bit_length())
    arguments = (q.view(batch, groups, each, width), k, v, table, lengths, mixes, marks, scale)
    sizes = (padded, width, piece, cut, pieces, steps)
    ct.launch(stream, (groups, parts, batch), paged_part_kernel, (*arguments, *sizes))
    power = 1 << (parts - 1).bit_length()
    arguments = (mixes, marks, lengths, out, each, width, power, min(power, 16), span)
    ct.launch(stream, (heads, batch), paged_join_kernel, arguments, programmatic_dependent_launch=True)
    return out
