"""Cross entropy and its gradient in cuTile: one block for each row, in one kernel.

The logits are seen as one flat array, of which each row's middle is cut at multiples of 8 elements (16 bytes),
so that rows of any length load and store whole vectors; the few elements beside it go through a gather.
The row's first tiles stay in registers from the maximum and sum to the gradient; the others are read twice,
the second time backwards and soon, from the caches. The middle's last tile ends where the middle ends and
overlaps the one before.
"""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
TILE = 2048
GROUP = 4
KEEP = 20
FOLD = 8
VECTOR = 8
SHORT = 128
LOG2E = 1.4426950408889634
LN2 = 0.6931471805599453
LOW = -1e30
LOWEST = -3.38e38


def power(x):
    return ct.exp2(x, flush_to_zero=True)


def fold(xs, most, sums, start, stop, fresh=False):
    """The tiles' elements into each lane's maximum (exact in the logits' own type) and sum."""
    more = most
    for k in ct.static_iter(range(start, stop)):
        more = ct.maximum(more, xs[k])
    # subtracted before the product, whose rounding would show where logits are large; finite even where all are -inf
    top = ct.maximum(more.astype(ct.float32), LOWEST)
    if not fresh:
        sums = sums * power((most.astype(ct.float32) - top) * LOG2E)
    for k in ct.static_iter(range(start, stop)):
        sums += power((xs[k].astype(ct.float32) - top) * LOG2E)
    return more, sums


def widen(x):
    """bfloat16 to float32 by its bits: not the conversion that fold had, whose results would stay in registers."""
    if x.dtype == ct.bfloat16:
        return ct.bitcast(ct.bitcast(x, ct.uint16).astype(ct.uint32) << 16, ct.float32)
    return x.astype(ct.float32)


def slope(x, highest, logs, where, dtype):
    p = power((widen(x) - highest) * LOG2E - logs)
    return ct.where(where, p - 1.0, p).astype(dtype)


def fetch(array, step, T, K):
    xs = ()
    for k in ct.static_iter(range(K)):
        xs += (ct.load(array, (step + k,), (T,), check_bounds=False, allow_tma=False),)
    return xs


@ct.kernel(occupancy=2, num_worker_warps=8)
def row_kernel(logits, target, loss, dlogits, V: Size, T: Size, H: Size, F: Size, K: Size, GROUPS: Size, REST: Size):
    row = ct.bid(0)
    first = row * V
    stop = first + V
    low = ct.assume_divisible_by((first + (VECTOR - 1)) // VECTOR * VECTOR, VECTOR)
    high = ct.assume_divisible_by(stop // VECTOR * VECTOR, VECTOR)
    middle = logits.slice(axis=0, start=low, stop=high)
    kept = fetch(middle, 0, T, H)

    chosen = first + ct.load(target, (row,), ())
    lane = ct.arange(T, dtype=ct.int32)
    # the row's edges: up to 7 elements before the middle and after it
    edge = ct.arange(2 * VECTOR, dtype=ct.int32)
    index = ct.where(edge < VECTOR, first + edge, high + edge - VECTOR)
    beside = (index < low) | ((edge >= VECTOR) & (index < stop))
    ends = ct.gather(logits, index, mask=beside, padding_value=LOW, check_bounds=False).astype(ct.float32)
    hit = ct.gather(logits, chosen, check_bounds=False).astype(ct.float32)

    tiles = (high - low) // T
    last = ct.assume_divisible_by(high - T, VECTOR)
    most = kept[0]
    sums = ct.zeros((T,), ct.float32)
    xs = fetch(middle, H, T, K)
    for k in ct.static_iter(range(0, H, F)):
        most, sums = fold(kept, most, sums, k, min(k + F, H), k == 0)
    if GROUPS > 1:
        for group in range(1, GROUPS):
            following = fetch(middle, H + group * K, T, K)
            most, sums = fold(xs, most, sums, 0, K)
            xs = following
    tail = ct.load(logits.slice(axis=0, start=last, stop=high), (0,), (T,), check_bounds=False, allow_tma=False)
    most, sums = fold(xs, most, sums, 0, K)
    if REST:
        for step in range(H + GROUPS * K, tiles):
            more = ct.load(middle, (step,), (T,), check_bounds=False, allow_tma=False)
            most, sums = fold((more,), most, sums, 0, 1)

    x = tail.astype(ct.float32)
    fresh = last + lane >= low + tiles * T
    highest = ct.maximum(ct.max(ct.maximum(most.astype(ct.float32), x)), ct.max(ends))
    sums = sums * power((most.astype(ct.float32) - highest) * LOG2E)
    sums += ct.where(fresh, power((x - highest) * LOG2E), 0.0)
    whole = ct.sum(sums) + ct.sum(ct.where(beside, power((ends - highest) * LOG2E), 0.0))
    logs = ct.log2(whole)
    ct.store(loss, (row,), logs * LN2 + (highest - hit))

    dtype = dlogits.dtype
    ct.scatter(dlogits, index, slope(ends, highest, logs, index == chosen, dtype), mask=beside, check_bounds=False)
    ct.store(dlogits.slice(axis=0, start=last, stop=high), (0,), slope(tail, highest, logs, lane == chosen - last, dtype),
             check_bounds=False, allow_tma=False)
    out = dlogits.slice(axis=0, start=low, stop=high)
    if REST:
        for step in range(H + GROUPS * K, tiles):
            more = ct.load(middle, (step,), (T,), check_bounds=False, allow_tma=False)
            ct.store(out, (step,), slope(more, highest, logs, lane == chosen - low - step * T, dtype),
                     check_bounds=False, allow_tma=False)
    xs = fetch(middle, H + (GROUPS - 1) * K, T, K)
    for k in ct.static_iter(range(H)):
        ct.store(out, (k,), slope(kept[k], highest, logs, lane == chosen - low - k * T, dtype),
                 check_bounds=False, allow_tma=False)
    if GROUPS > 1:
        for back in range(1, GROUPS):
            start = H + (GROUPS - back) * K
            following = fetch(middle, start - K, T, K)
            for k in ct.static_iter(range(K)):
                ct.store(out, (start + k,), slope(xs[k], highest, logs, lane == chosen - low - (start + k) * T, dtype),
                         check_bounds=False, allow_tma=False)
            xs = following
    for k in ct.static_iter(range(K)):
        ct.store(out, (H + k,), slope(xs[k], highest, logs, lane == chosen - low - (H + k) * T, dtype),
                 check_bounds=False, allow_tma=False)


@ct.kernel
def short_kernel(logits, target, loss, dlogits, V: Size, T: Size):
    row = ct.bid(0)
    lane = ct.arange(T, dtype=ct.int32)
    valid = lane < V
    index = row * V + lane
    x = ct.gather(logits, index, mask=valid, padding_value=LOW, check_bounds=False).astype(ct.float32)
    chosen = ct.load(target, (row,), ())
    hit = ct.gather(logits, row * V + chosen, check_bounds=False).astype(ct.float32)
    highest = ct.max(x)
    logs = ct.log2(ct.sum(ct.where(valid, power((x - highest) * LOG2E), 0.0)))
    ct.store(loss, (row,), logs * LN2 + (highest - hit))
    ct.scatter(dlogits, index, slope(x, highest, logs, lane == chosen, dlogits.dtype), mask=valid, check_bounds=False)


def cross_entropy(logits, target):
    """logits (M, V), target (M,) int32 -> loss (M,) float32, dlogits (M, V) of the logits' dtype."""
    rows, columns = logits.shape
    logits = logits.contiguous()
    loss = torch.empty(rows, dtype=torch.float32, device=logits.device)
    dlogits = torch.empty_like(logits)
    stream = torch.cuda.current_stream()
    tile, keep = TILE, KEEP
    if columns < 4 * TILE:
        keep = 2
    while (keep + GROUP) * tile + 2 * VECTOR > columns and tile > 1:
        tile //= 2
    least, largest = (columns - 2 * VECTOR + 2) // tile, columns // tile
    groups = (least - keep) // GROUP
    rest = int(keep + groups * GROUP < largest)
    at_once = (2**31 - 2**16) // columns // VECTOR * VECTOR  # so that the flat index stays within 32 bits
    for start in range(0, rows, at_once):
        part = slice(start, min(start + at_once, rows))
        args = (logits[part].view(-1), target[part], loss[part], dlogits[part].view(-1), columns)
        grid = (part.stop - start,)
        if columns < SHORT:
            ct.launch(stream, grid, short_kernel, (*args, SHORT))
        else:
            ct.launch(stream, grid, row_kernel, (*args, tile, keep, FOLD, GROUP, groups, rest))
    return loss, dlogits
