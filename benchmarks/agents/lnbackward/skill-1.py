"""Backward of layer norm in cuTile: one pass over the rows, with partial sums of the columns."""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


def add_pairs(a, b, c, d):
    return a + c, b + d


def load_row(dy, x, row, N, T):
    """Rows are always inside; columns are where a row is a whole tile."""
    if N == T:
        d = ct.load(dy, (row, 0), (1, T), check_bounds=False, allow_tma=False)
        a = ct.load(x, (row, 0), (1, T), check_bounds=False, allow_tma=False)
    else:
        d = ct.load(dy, (row, 0), (1, T), padding_mode=ZERO, allow_tma=False)
        a = ct.load(x, (row, 0), (1, T), padding_mode=ZERO, allow_tma=False)
    return d, a


def load_statistics(mean, rstd, row):
    mu = ct.load(mean, (row,), (1,), check_bounds=False).reshape((1, 1))
    r = ct.load(rstd, (row,), (1,), check_bounds=False).reshape((1, 1))
    return mu, r


def finish_row(loaded, statistics, w, dx, row, dw, db, N):
    """Stores the row's dx and adds its share to dw and db; zeros beyond the edge of dy and weight make masks needless."""
    d, a = loaded
    mu, r = statistics
    d = d.astype(ct.float32)
    xhat = a.astype(ct.float32) * r + (-mu * r)
    dw, db = dw + d * xhat, db + d
    g = d * w.astype(ct.float32)
    sum_g, sum_gx = ct.reduce((g, g * xhat), 1, add_pairs, (0.0, 0.0), keepdims=True)
    scale = -r * (1.0 / N)
    result = r * g + (xhat * (scale * sum_gx) + scale * sum_g)
    ct.store(dx, (row, 0), result.astype(dx.dtype), check_bounds=N != result.shape[1], allow_tma=False)
    return dw, db


@ct.kernel(occupancy=2, num_worker_warps=8)
def rows_kernel(dy, x, weight, mean, rstd, dx, part, rows, N: Size, T: Size):
    """Each block takes every num_blocks-th row, writes its dx, and adds up its share of dweight and dbias."""
    block, blocks = ct.bid(0), ct.num_blocks(0)
    w = ct.load(weight, (0,), (T,), padding_mode=ZERO, allow_tma=False)[None, :]
    dw = ct.zeros((1, T), ct.float32)
    db = ct.zeros((1, T), ct.float32)
    # two rows a step, each fetched again as soon as it is done with, so that one or two rows are always on their way
    last = rows - 1
    second = min(block + blocks, last)
    even, odd = load_row(dy, x, block, N, T), load_row(dy, x, second, N, T)
    even_statistics, odd_statistics = load_statistics(mean, rstd, block), load_statistics(mean, rstd, second)
    for row in range(block, rows, 2 * blocks):
        third, fourth = min(row + 2 * blocks, last), min(row + 3 * blocks, last)
        third_statistics, fourth_statistics = load_statistics(mean, rstd, third), load_statistics(mean, rstd, fourth)
        dw, db = finish_row(even, even_statistics, w, dx, row, dw, db, N)
        even = load_row(dy, x, third, N, T)
        if row + blocks < rows:
            dw, db = finish_row(odd, odd_statistics, w, dx, row + blocks, dw, db, N)
        odd = load_row(dy, x, fourth, N, T)
        even_statistics, odd_statistics = third_statistics, fourth_statistics
    ct.store(part, (0, block, 0), dw.reshape((1, 1, T)), allow_tma=False)
    ct.store(part, (1, block, 0), db.reshape((1, 1, T)), allow_tma=False)


@ct.kernel(occupancy=2)
def columns_kernel(part, dweight, dbias, T: Size, R: Size):
    """Adds the blocks' shares up."""
    column, which = ct.bid(0), ct.bid(1)
    total = ct.zeros((1, R, T), ct.float32)
    for step in range(ct.num_tiles(part, axis=1, shape=(1, R, T))):
        total += ct.load(part, (which, step, column), (1, R, T), padding_mode=ZERO)
    result = ct.sum(total, axis=1).reshape((T,))
    if which == 0:
        ct.store(dweight, (column,), result)
    else:
        ct.store(dbias, (column,), result.astype(dbias.dtype))


def layernorm_backward(dy, x, weight, mean, rstd):
    """dy, x (M, N), weight (N,), mean, rstd (M,) -> dx (M, N), dweight (N,), dbias (N,)."""
    rows, columns = x.shape
    dx = torch.empty_like(x)
    dweight = torch.empty(columns, dtype=torch.float32, device=x.device)
    dbias = torch.empty_like(dweight)
    width = 1 << max(columns - 1, 15).bit_length()
    blocks = min(264, rows)
    part = torch.empty(2, blocks, columns, dtype=torch.float32, device=x.device)
    stream = torch.cuda.current_stream()
    ct.launch(stream, (blocks,), rows_kernel, (dy, x, weight, mean, rstd, dx, part, rows, columns, width))
    ct.launch(stream, (ct.cdiv(columns, 32), 2), columns_kernel, (part, dweight, dbias, 32, 32))
    return dx, dweight, dbias
