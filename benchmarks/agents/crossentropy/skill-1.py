"""Cross entropy and its gradient in cuTile: a block takes a row, reads it once and keeps it in registers."""

import math

import cuda.tile as ct
import torch

Size = ct.Constant[int]
LINE = 64  # elements: blocks load and store from 128-byte boundaries on, whatever the length of a row
TILE = 2048
LOG2E = 1.44269502162933349609375  # in float32, exactly


def widened(tile):
    """tile in float32. For bfloat16 not by a cast, lest the compiler keep the first cast's results in registers."""
    if tile.dtype == ct.bfloat16:
        return ct.bitcast(ct.bitcast(tile, ct.uint16).astype(ct.uint32) << 16, ct.float32)
    return tile.astype(ct.float32)


def per_thread(tile, reduction):
    """Reduces tile to 256 elements, one for each thread of 8 warps, without anything crossing threads."""
    return reduction(tile.reshape((256, tile.shape[0] // 256)), axis=1)


@ct.kernel(num_worker_warps=8, occupancy=2)
def row_kernel(logits, target, loss, dlogits, scale, V: Size, WHOLE: Size, HALF: Size, T: Size, E: Size, L: Size):
    """logits and dlogits are flat; scale is log2(e), which the compiler must not know to be the constant.

    Of a row, the elements up to the next line and those that are left at the end make one ragged tile of E. Between them
    lie WHOLE tiles of T and HALF (0 or 1) of T / 2, all aligned and full."""
    row = ct.bid(0)
    start = row * V
    base = start // L * L
    inner = WHOLE * T + HALF * (T // 2)
    chosen = start + ct.load(target, (row,), (1,), check_bounds=False).item()
    lane = ct.arange(E, dtype=ct.int32)
    place = base + ct.where(lane < L, lane, lane + inner)
    inside = (place >= start) & (place < start + V)
    edge = ct.gather(logits, place, mask=inside, padding_value=-math.inf).astype(ct.float32)
    source = logits.slice(axis=0, start=base + L, stop=base + L + inner)
    tiles = ()
    for i in ct.static_iter(range(WHOLE)):
        tiles += (ct.load(source, (i,), (T,), check_bounds=False, allow_tma=False),)
    if HALF:
        half = ct.load(source, (2 * WHOLE,), (T // 2,), check_bounds=False, allow_tma=False)
    picked = ct.gather(logits, chosen).astype(ct.float32)

    peaks = per_thread(edge, ct.max)
    if WHOLE:
        most = tiles[0]
        for i in ct.static_iter(range(1, WHOLE)):
            most = ct.maximum(most, tiles[i])
        peaks = ct.maximum(peaks, per_thread(most, ct.max).astype(ct.float32))
    if HALF:
        peaks = ct.maximum(peaks, per_thread(half, ct.max).astype(ct.float32))
    top = ct.max(peaks)
    shift = top * LOG2E

    parts = per_thread(ct.exp2(edge * LOG2E - shift, flush_to_zero=True), ct.sum)
    if WHOLE:
        sums = ct.zeros((T,), ct.float32)
        for i in ct.static_iter(range(WHOLE)):
            sums += ct.exp2(tiles[i].astype(ct.float32) * LOG2E - shift, flush_to_zero=True)
        parts += per_thread(sums, ct.sum)
    if HALF:
        parts += per_thread(ct.exp2(half.astype(ct.float32) * LOG2E - shift, flush_to_zero=True), ct.sum)
    total = ct.sum(parts)
    inverse = 1.0 / total

    out = dlogits.slice(axis=0, start=base + L, stop=base + L + inner)
    for i in ct.static_iter(range(WHOLE)):
        p = ct.exp2(widened(tiles[i]) * scale - shift, flush_to_zero=True) * inverse
        ct.store(out, (i,), p.astype(dlogits.dtype), check_bounds=False, allow_tma=False)
    if HALF:
        p = ct.exp2(widened(half) * scale - shift, flush_to_zero=True) * inverse
        ct.store(out, (2 * WHOLE,), p.astype(dlogits.dtype), check_bounds=False, allow_tma=False)
    p = ct.exp2(edge * scale - shift, flush_to_zero=True) * inverse
    ct.scatter(dlogits, place, p.astype(dlogits.dtype), mask=inside)
    p = ct.exp2(picked * scale - shift, flush_to_zero=True) * inverse
    ct.scatter(dlogits, chosen, (p - 1.0).astype(dlogits.dtype))
    # shift is rounded: every term of total has the same factor, which is taken out of the loss alone, where it does not cancel
    error = (top.astype(ct.float64) * LOG2E - shift.astype(ct.float64)).astype(ct.float32)
    ct.store(loss, (row,), (ct.log(total) - error * 0.6931471805599453 + (top - picked)).reshape((1,)))


def cross_entropy(logits, target):
    """logits (M, V), target (M,) int32 -> loss (M,) float32, dlogits (M, V) of the logits' dtype."""
    rows, columns = logits.shape
    loss = torch.empty(rows, dtype=torch.float32, device=logits.device)
    dlogits = torch.empty(rows, columns, dtype=logits.dtype, device=logits.device)
    whole, rest = divmod(max(columns - LINE, 0), TILE)
    half = rest // (TILE // 2)
    edge = max(256, 1 << (columns + LINE - 1 - whole * TILE - half * (TILE // 2) - 1).bit_length())
    arguments = (logits.reshape(-1), target, loss, dlogits.view(-1), LOG2E, columns, whole, half, TILE, edge, LINE)
    ct.launch(torch.cuda.current_stream(), (rows,), row_kernel, arguments)
    return loss, dlogits
