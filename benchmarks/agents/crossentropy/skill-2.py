"""Cross entropy and its gradient in cuTile."""

import math

import cuda.tile as ct
import torch

Size = ct.Constant[int]
TILE = 256  # of the kernels for rows that no block can keep

# One block a row: it keeps the row in registers, in 16 bits, from the only read to the gradient's store.
THREADS = 256
WIDE = 2048  # 8 values, 16 bytes, for each thread
NARROW = 1024
LONGEST = 26 * WIDE
LINE = 64  # rows begin anywhere: tiles begin at multiples of so many elements, so that accesses are wide
LOG2E = math.log2(math.e)
LOW = -1e30


def widen(a):
    """float32 of bfloat16, by its bits."""
    return ct.bitcast(ct.bitcast(a, ct.uint16).astype(ct.uint32) << 16, ct.float32)


def threads(a):
    """One row for each thread, which holds all of it."""
    return a.reshape((THREADS, a.shape[0] // THREADS))


@ct.kernel(occupancy=2, num_worker_warps=8)
def row_kernel(logits, target, loss, dlogits, log2e, V: Size, MANY: Size, W: Size, FEW: Size, N: Size, EDGE: Size):
    row = ct.bid(0)
    start = row * V
    line = start // LINE * LINE + LINE
    middle = line + MANY * W
    end = middle + FEW * N
    chosen = start + ct.load(target, (row,), (1,))
    place = ct.arange(EDGE, dtype=ct.int32)
    place = line - LINE + ct.where(place < LINE, place, place + (MANY * W + FEW * N))
    valid = (place >= start) & (place < start + V)
    edge = ct.gather(logits, place, mask=valid, padding_value=0).astype(ct.float32)
    edge = ct.where(valid, edge, LOW)
    wide, narrow = logits.slice(axis=0, start=line, stop=middle), logits.slice(axis=0, start=middle, stop=end)
    kept, rest = (), ()
    for i in ct.static_iter(range(MANY)):
        kept += (ct.load(wide, (i,), (W,), check_bounds=False, allow_tma=False),)
    for i in ct.static_iter(range(FEW)):
        rest += (ct.load(narrow, (i,), (N,), check_bounds=False, allow_tma=False),)
    picked = ct.gather(logits, chosen).astype(ct.float32)

    # within threads first, and across them once for the maximum, once for the sum
    most = ct.max(threads(edge), axis=1)
    if MANY > 0:
        higher = kept[0]
        for i in ct.static_iter(range(1, MANY)):
            higher = ct.maximum(higher, kept[i])
        most = ct.maximum(most, ct.max(threads(higher), axis=1).astype(ct.float32))
    for i in ct.static_iter(range(FEW)):
        most = ct.maximum(most, ct.max(threads(rest[i]), axis=1).astype(ct.float32))
    top = ct.max(most, axis=0, keepdims=True)

    sums = ct.sum(threads(ct.exp2((edge - top) * LOG2E, flush_to_zero=True)), axis=1)
    for i in ct.static_iter(range(MANY)):
        sums += ct.sum(threads(ct.exp2((kept[i].astype(ct.float32) - top) * LOG2E, flush_to_zero=True)), axis=1)
    for i in ct.static_iter(range(FEW)):
        sums += ct.sum(threads(ct.exp2((rest[i].astype(ct.float32) - top) * LOG2E, flush_to_zero=True)), axis=1)
    whole = ct.sum(sums, axis=0, keepdims=True)
    ct.store(loss, (row,), ct.log(whole) + top - picked)
    scale = -ct.log2(whole)  # an exponent, so that a multiply-add applies it

    dwide, dnarrow = dlogits.slice(axis=0, start=line, stop=middle), dlogits.slice(axis=0, start=middle, stop=end)
    for i in ct.static_iter(range(MANY)):
        p = ct.exp2((widen(kept[i]) - top) * log2e + scale, flush_to_zero=True)
        ct.store(dwide, (i,), p.astype(dlogits.dtype), check_bounds=False, allow_tma=False)
    for i in ct.static_iter(range(FEW)):
        p = ct.exp2((widen(rest[i]) - top) * log2e + scale, flush_to_zero=True)
        ct.store(dnarrow, (i,), p.astype(dlogits.dtype), check_bounds=False, allow_tma=False)
    p = ct.exp2((edge - top) * log2e + scale, flush_to_zero=True)
    ct.scatter(dlogits, place, p.astype(dlogits.dtype), mask=valid)
    p = ct.exp2((picked - top) * log2e, flush_to_zero=True) / whole - 1.0
    ct.scatter(dlogits, chosen, p.astype(dlogits.dtype))


@ct.kernel
def loss_kernel(logits, target, loss, top, total, V: Size, T: Size):
    row = ct.bid(0)
    most = ct.full((1, T), -1e30, ct.float32)
    for step in range(ct.cdiv(V, T)):
        valid = (step * T + ct.arange(T, dtype=ct.int32))[None, :] < V
        x = ct.load(logits, (row, step), (1, T), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
        most = ct.maximum(most, ct.where(valid, x, -1e30))
    highest = ct.max(most, axis=1, keepdims=True)
    sums = ct.zeros((1, T), ct.float32)
    for step in range(ct.cdiv(V, T)):
        valid = (step * T + ct.arange(T, dtype=ct.int32))[None, :] < V
        x = ct.load(logits, (row, step), (1, T), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
        sums += ct.where(valid, ct.exp(x - highest), 0.0)
    whole = ct.sum(sums, axis=1, keepdims=True)
    chosen = ct.load(target, (row,), (1,))
    x = ct.gather(logits, (row, chosen)).astype(ct.float32)
    ct.store(loss, (row,), ct.log(whole.reshape((1,))) + highest.reshape((1,)) - x)
    ct.store(top, (row,), highest.reshape((1,)))
    ct.store(total, (row,), whole.reshape((1,)))


@ct.kernel
def gradient_kernel(logits, target, top, total, dlogits, T: Size):
    row, step = ct.bid(0), ct.bid(1)
    columns = (step * T + ct.arange(T, dtype=ct.int32))[None, :]
    x = ct.load(logits, (row, step), (1, T), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
    highest = ct.load(top, (row,), (1,)).reshape((1, 1))
    whole = ct.load(total, (row,), (1,)).reshape((1, 1))
    chosen = ct.load(target, (row,), (1,)).reshape((1, 1))
    probability = ct.exp(x - highest) / whole
    ct.store(dlogits, (row, step), ct.where(columns == chosen, probability - 1.0, probability).astype(dlogits.dtype))


def cross_entropy(logits, target):
    """logits (M, V), target (M,) int32 -> loss (M,) float32, dlogits (M, V) of the logits' dtype."""
    rows, columns = logits.shape
    stream = torch.cuda.current_stream()
    if logits.dtype == torch.bfloat16 and columns <= LONGEST and rows * columns < 2**31 - 2**16:
        loss = torch.empty(rows, dtype=torch.float32, device=logits.device)
        dlogits = torch.empty((rows, columns), dtype=logits.dtype, device=logits.device)
        many, left = divmod(max(columns - LINE, 0), WIDE)
        few = left // NARROW
        edge = columns + LINE - many * WIDE - few * NARROW
        sizes = columns, many, WIDE, few, NARROW, max(THREADS, 1 << (edge - 1).bit_length())
        ct.launch(stream, (rows,), row_kernel, (logits.reshape(-1), target, loss, dlogits.view(-1), LOG2E, *sizes))
        return loss, dlogits
    loss, top, total = (torch.empty(rows, dtype=torch.float32, device=logits.device) for _ in range(3))
    dlogits = torch.empty_like(logits)
    ct.launch(stream, (rows,), loss_kernel, (logits, target, loss, top, total, columns, TILE))
    grid = (rows, ct.cdiv(columns, TILE))
    ct.launch(stream, grid, gradient_kernel, (logits, target, top, total, dlogits, TILE))
    return loss, dlogits
