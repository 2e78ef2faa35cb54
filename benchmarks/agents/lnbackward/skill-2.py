"""Backward of layer norm in cuTile: one pass over the rows, then the sum of the blocks' shares of the column sums."""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
Flag = ct.Constant[bool]
ZERO = ct.PaddingMode.ZERO
BLOCKS = 256  # two for nearly each of 132 SMs; as many as one tile of share_kernel holds rows
COLUMNS = 32


def load_row(x, row, N: Size, T: Size):
    if N == T:
        return ct.load(x, (row, 0), (1, T), check_bounds=False, allow_tma=False)
    else:
        return ct.load(x, (row, 0), (1, T), padding_mode=ZERO, allow_tma=False)


def load_one(x, row):
    return ct.load(x, (row,), (1,), check_bounds=False, allow_tma=False).reshape((1, 1))


def add_both(a, b, c, d):
    return a + c, b + d


@ct.kernel(occupancy=2, num_worker_warps=8)  # 128 registers a thread hold it without spills for rows of 4096
def rows_kernel(dy, x, weight, mean, rstd, dx, part_w, part_b, N: Size, T: Size):
    """Blocks walk over rows: dx of each, and this block's share of dweight and dbias.

    Zeros of dy and weight beyond the edge make masks needless. Two rows are loaded ahead of the work.
    """
    first, stride, rows = ct.bid(0), ct.num_blocks(0), x.shape[0]
    dw = ct.zeros((1, T), ct.float32)
    db = ct.zeros((1, T), ct.float32)
    last = rows - 1
    second = min(first + stride, last)
    d_now, x_now = load_row(dy, first, N, T), load_row(x, first, N, T)
    mu_now, r_now = load_one(mean, first), load_one(rstd, first)
    d_next, x_next = load_row(dy, second, N, T), load_row(x, second, N, T)
    mu_next, r_next = load_one(mean, second), load_one(rstd, second)
    if N == T:
        w = ct.load(weight, (0,), (T,), check_bounds=False, allow_tma=False).astype(ct.float32)[None, :]
    else:
        w = ct.load(weight, (0,), (T,), padding_mode=ZERO, allow_tma=False).astype(ct.float32)[None, :]
    for row in range(first, rows, stride):
        d, a, mu, r = d_now.astype(ct.float32), x_now.astype(ct.float32), mu_now, r_now
        d_now, x_now, mu_now, r_now = d_next, x_next, mu_next, r_next
        ahead = min(row + 2 * stride, last)  # the last two are loaded for nothing
        d_next, x_next = load_row(dy, ahead, N, T), load_row(x, ahead, N, T)
        mu_next, r_next = load_one(mean, ahead), load_one(rstd, ahead)
        hat = (a - mu) * r
        dw += d * hat
        db += d
        g = d * w
        sum_g, sum_hat = ct.reduce((g, g * hat), 1, add_both, (0.0, 0.0), keepdims=True)
        share = r * (1.0 / N)
        result = g * r - (hat * (sum_hat * share) + sum_g * share)
        if N == T:
            ct.store(dx, (row, 0), result.astype(dx.dtype), check_bounds=False, allow_tma=False)
        else:
            ct.store(dx, (row, 0), result.astype(dx.dtype), allow_tma=False)
    ct.store(part_w, (first, 0), dw, allow_tma=False)
    ct.store(part_b, (first, 0), db, allow_tma=False)


def sum_shares(part, out, column, R: Size, T: Size, WHOLE: Flag):
    if WHOLE:
        a = ct.load(part, (0, column), (R, T), check_bounds=False, allow_tma=False)
    else:
        a = ct.load(part, (0, column), (R, T), padding_mode=ZERO, allow_tma=False)
    ct.store(out, (column,), ct.sum(a, axis=0), allow_tma=False)


@ct.kernel
def share_kernel(part_w, part_b, dweight, dbias, R: Size, T: Size, WHOLE: Flag):
    if ct.bid(1) == 0:
        sum_shares(part_w, dweight, ct.bid(0), R, T, WHOLE)
    else:
        sum_shares(part_b, dbias, ct.bid(0), R, T, WHOLE)


def power_of_two(n):
    return 1 << max(n - 1, 0).bit_length()


def layernorm_backward(dy, x, weight, mean, rstd):
    """dy, x (M, N), weight (N,), mean, rstd (M,) -> dx (M, N), dweight (N,), dbias (N,)."""
    rows, columns = x.shape
    blocks = min(rows, BLOCKS)
    dx = torch.empty_like(x)
    dweight = torch.empty(columns, dtype=torch.float32, device=x.device)
    dbias = torch.empty_like(dweight)
    part_w = torch.empty((blocks, columns), dtype=torch.float32, device=x.device)
    part_b = torch.empty_like(part_w)
    stream = torch.cuda.current_stream()
    wide = power_of_two(columns)
    ct.launch(stream, (blocks,), rows_kernel, (dy, x, weight, mean, rstd, dx, part_w, part_b, columns, wide))
    bands = power_of_two(blocks)
    shares = (part_w, part_b, dweight, dbias, bands, COLUMNS, bands == blocks and columns % COLUMNS == 0)
    ct.launch(stream, (ct.cdiv(columns, COLUMNS), 2), share_kernel, shares)
    return dx, dweight, dbias
