"""Cross entropy and its gradient in cuTile: one block per row, one fused kernel on the flat logits.

logits and dlogits are seen flat, since the rows of an odd V start at any element. A row [s, e) is split
into an interior [a, b) whose ends are multiples of 8 elements (16 bytes), so that it moves in vectors,
and a rim of up to 7 elements on either side. The interior is FULL tiles of T elements, and the rest,
which fits one tile of REST elements.
"""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
TILE = 4096
HELD = 12  # the most tiles of a row that fit in the registers
WIDE = 2048  # eight elements for each of 256 threads
LOG2E = 1.4426950408889634
INF = float("inf")


@ct.function
def fold(x):
    """Adds the parts of x that are WIDE."""
    return ct.sum(x.reshape((x.shape[0] // WIDE, WIDE)), axis=0)


@ct.function
def total(sums, few):
    """The sum of WIDE and of WIDE // 8 numbers."""
    return ct.sum(ct.sum(sums.reshape((WIDE // 8, 8)), axis=1) + few)


@ct.function
def exponential(x, shift):
    return ct.exp2(x.astype(ct.float32) * LOG2E - shift, flush_to_zero=True)


@ct.function
def widen(x, by):
    """float32 of bfloat16, by a shift of 16."""
    return ct.bitcast(ct.bitcast(x, ct.uint16).astype(ct.uint32) << by, ct.float32)


@ct.kernel(occupancy=2, num_worker_warps=8)
def row_kernel(logits, target, loss, dlogits, V: Size, T: Size, FULL: Size, REST: Size, HOLD: Size):
    row = ct.bid(0)
    s = row * V
    e = s + V
    a = ct.assume_divisible_by((s + 7) // 8 * 8, 8)
    b = ct.assume_divisible_by(ct.maximum(e // 8 * 8, a), 8)
    first = ct.gather(logits, s).astype(ct.float32)
    chosen = s + ct.load(target, (row,), ())

    spot = ct.assume_divisible_by(a + FULL * T, 8) + ct.arange(REST, dtype=ct.int32)
    in_rest = spot < b
    rest = ct.gather(logits, spot, mask=in_rest, padding_value=-INF, check_bounds=False)
    lane = ct.arange(WIDE // 8, dtype=ct.int32)
    edge = ct.where(lane < 8, s + lane, b + lane - 8)
    in_edge = ct.where(lane < 8, edge < ct.minimum(a, e), (edge < e) & (lane < 16))
    rim = ct.gather(logits, edge, mask=in_edge, padding_value=-INF, check_bounds=False)
    source = logits.slice(axis=0, start=a, stop=b)
    sink = dlogits.slice(axis=0, start=a, stop=b)

    # The sum is taken relative to the row's first logit: any logit will do unless the sum overflows.
    shift = first * LOG2E
    held = ()
    for i in ct.static_iter(range(HOLD)):
        held += (ct.load(source, (i,), (T,), check_bounds=False, allow_tma=False),)
    sums = fold(exponential(rest, shift))
    for i in ct.static_iter(range(HOLD)):
        sums += fold(exponential(held[i], shift))
    for i in range(HOLD, FULL):
        x = ct.load(source, (i,), (T,), check_bounds=False, allow_tma=False)
        sums += fold(exponential(x, shift))
    picked = ct.gather(logits, chosen).astype(ct.float32)
    whole = total(sums, exponential(rim, shift))
    logs = ct.log(whole)
    base = first
    # The bfloat16 are widened below in another way than above, by a shift that is only known now:
    # else the compiler would keep the widened numbers of the first pass, and spill them.
    by = 16 + ct.where(whole < 0.0, 1, 0).astype(ct.uint32)
    if not (whole < 1e38):  # the first logit is far below the highest: start again from the highest
        most = ct.full((WIDE,), -INF, logits.dtype)
        for i in ct.static_iter(range(HOLD)):
            most = ct.maximum(most, ct.max(held[i].reshape((T // WIDE, WIDE)), axis=0))
        # The bound is FULL, but hidden in the loops lest the compiler unroll them.
        stop = ct.minimum((b - a) // T, FULL)
        if HOLD < FULL:
            for i in range(HOLD, stop):
                x = ct.load(source, (i,), (T,), check_bounds=False, allow_tma=False)
                most = ct.maximum(most, ct.max(x.reshape((T // WIDE, WIDE)), axis=0))
        base = ct.maximum(ct.max(most), ct.maximum(ct.max(rest), ct.max(rim))).astype(ct.float32)
        shift = base * LOG2E
        sums = fold(exponential(rest, shift))
        for i in ct.static_iter(range(HOLD)):
            sums += fold(exponential(widen(held[i], by), shift))
        if HOLD < FULL:
            for i in range(HOLD, stop):
                x = ct.load(source, (i,), (T,), check_bounds=False, allow_tma=False)
                sums += fold(exponential(x, shift))
        logs = ct.log(total(sums, exponential(rim, shift)))

    normal = (base + logs) * LOG2E
    for i in range(HOLD, FULL):
        x = ct.load(source, (i,), (T,), check_bounds=False, allow_tma=False)
        ct.store(sink, (i,), exponential(x, normal).astype(dlogits.dtype), check_bounds=False, allow_tma=False)
    for i in ct.static_iter(range(HOLD)):
        x = widen(held[i], by)
        ct.store(sink, (i,), exponential(x, normal).astype(dlogits.dtype), check_bounds=False, allow_tma=False)
    ct.scatter(dlogits, spot, exponential(rest, normal).astype(dlogits.dtype), mask=in_rest, check_bounds=False)
    ct.scatter(dlogits, edge, exponential(rim, normal).astype(dlogits.dtype), mask=in_edge, check_bounds=False)

    # After the stores above, in program order: the element of the target.
    ct.store(loss, (row,), logs + (base - picked))
    ct.scatter(dlogits, chosen, (exponential(picked, normal) - 1.0).astype(dlogits.dtype))


def plan(columns, dtype):
    """The whole tiles in the interior of any row; the tile for what follows them; the tiles to hold (all or none)."""
    full = max(columns - 14, 0) // TILE
    rest = WIDE
    while rest < columns - full * TILE:
        rest *= 2
    return full, rest, full if dtype == torch.bfloat16 and full <= HELD else 0


def cross_entropy(logits, target):
    """logits (M, V), target (M,) int32 -> loss (M,) float32, dlogits (M, V) of the logits' dtype."""
    rows, columns = logits.shape
    logits = logits.contiguous()
    loss = torch.empty(rows, dtype=torch.float32, device=logits.device)
    dlogits = torch.empty_like(logits)
    arrays = (logits.view(-1), target, loss, dlogits.view(-1))
    sizes = (columns, TILE) + plan(columns, logits.dtype)
    ct.launch(torch.cuda.current_stream(), (rows,), row_kernel, arrays + sizes)
    return loss, dlogits
