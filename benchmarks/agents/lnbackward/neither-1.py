"""Backward of layer norm in cuTile.

One persistent kernel reads dy and x once: each block takes every 256th row, writes its dx and keeps its share of dweight and dbias in
registers; a second kernel adds the blocks' shares. Rows of fewer than 512 columns take the plain two-kernel path.
"""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
BLOCKS = 256  # two blocks on an SM; also the tile height of the last sum


def add_pairs(a, b, c, d):
    return a + c, b + d


@ct.kernel(occupancy=2, num_worker_warps=8)
def fused_kernel(dy, x, weight, mean, rstd, dx, dweight, dbias, N: Size, K: Size, C: Size):
    # A row of N columns is seen as (N // C, C), so that one bulk copy can fetch it; padding is zero in dy and so in every sum.
    block = ct.bid(0)
    blocks = ct.num_blocks(0)
    rows = x.shape[0]
    w = ct.load(weight, (0, 0, 0), (1, K, C), padding_mode=ZERO, allow_tma=False).reshape((1, K * C))
    dw = ct.zeros((1, K * C), ct.float32)
    db = ct.zeros((1, K * C), ct.float32)
    next_mu = ct.load(mean, (block,), (1,))
    next_r = ct.load(rstd, (block,), (1,))
    for row in range(block, rows, blocks):
        d = ct.load(dy, (row, 0, 0), (1, K, C), padding_mode=ZERO).reshape((1, K * C)).astype(ct.float32)
        v = ct.load(x, (row, 0, 0), (1, K, C), padding_mode=ZERO).reshape((1, K * C)).astype(ct.float32)
        mu = next_mu.reshape((1, 1))
        r = next_r.reshape((1, 1))
        ahead = min(row + blocks, rows - 1)
        next_mu = ct.load(mean, (ahead,), (1,))
        next_r = ct.load(rstd, (ahead,), (1,))
        xhat = v * r + (-mu * r)
        g = d * w.astype(ct.float32)
        dw += d * xhat
        db += d
        sum_g, sum_gx = ct.reduce((g, g * xhat), 1, add_pairs, (0.0, 0.0), keepdims=True)
        scale = r * (1.0 / N)
        out = r * g - (xhat * (sum_gx * scale) + sum_g * scale)
        ct.store(dx, (row, 0, 0), out.astype(dx.dtype).reshape((1, K, C)), allow_tma=False)
    ct.store(dweight, (block, 0, 0), dw.reshape((1, K, C)), allow_tma=False)
    ct.store(dbias, (block, 0, 0), db.reshape((1, K, C)), allow_tma=False)


@ct.kernel
def total_kernel(parts, totals, R: Size, T: Size):
    column = ct.bid(0)
    which = ct.bid(1)
    part = ct.load(parts, (which, 0, column), (1, R, T), padding_mode=ZERO, allow_tma=False)
    ct.store(totals, (which, column), ct.sum(part, axis=1), allow_tma=False)


@ct.kernel
def dx_kernel(dy, x, weight, mean, rstd, dx, N: Size, T: Size):
    row = ct.bid(0)
    mu = ct.load(mean, (row,), (1,)).reshape((1, 1))
    r = ct.load(rstd, (row,), (1,)).reshape((1, 1))
    first = ct.zeros((1, T), ct.float32)
    second = ct.zeros((1, T), ct.float32)
    for step in range(ct.cdiv(N, T)):
        valid = (step * T + ct.arange(T, dtype=ct.int32))[None, :] < N
        g = ct.load(dy, (row, step), (1, T), padding_mode=ZERO).astype(ct.float32)
        g = g * ct.load(weight, (step,), (T,), padding_mode=ZERO).astype(ct.float32)[None, :]
        xhat = (ct.load(x, (row, step), (1, T), padding_mode=ZERO).astype(ct.float32) - mu) * r
        first += ct.where(valid, g, 0.0)
        second += ct.where(valid, g * xhat, 0.0)
    mean_g = ct.sum(first, axis=1, keepdims=True) / N
    mean_gx = ct.sum(second, axis=1, keepdims=True) / N
    for step in range(ct.cdiv(N, T)):
        g = ct.load(dy, (row, step), (1, T), padding_mode=ZERO).astype(ct.float32)
        g = g * ct.load(weight, (step,), (T,), padding_mode=ZERO).astype(ct.float32)[None, :]
        xhat = (ct.load(x, (row, step), (1, T), padding_mode=ZERO).astype(ct.float32) - mu) * r
        ct.store(dx, (row, step), (r * (g - mean_g - xhat * mean_gx)).astype(dx.dtype))


@ct.kernel
def dweight_kernel(dy, x, mean, rstd, dweight, dbias, T: Size, R: Size):
    column = ct.bid(0)
    dw = ct.zeros((R, T), ct.float32)
    db = ct.zeros((R, T), ct.float32)
    for step in range(ct.num_tiles(x, axis=0, shape=(R, T))):
        g = ct.load(dy, (step, column), (R, T), padding_mode=ZERO).astype(ct.float32)
        mu = ct.load(mean, (step,), (R,), padding_mode=ZERO)[:, None]
        r = ct.load(rstd, (step,), (R,), padding_mode=ZERO)[:, None]
        xhat = (ct.load(x, (step, column), (R, T), padding_mode=ZERO).astype(ct.float32) - mu) * r
        dw += g * xhat
        db += g
    ct.store(dweight, (column,), ct.sum(dw, axis=0))
    ct.store(dbias, (column,), ct.sum(db, axis=0))


def layernorm_backward(dy, x, weight, mean, rstd):
    """dy, x (M, N), weight (N,), mean, rstd (M,) -> dx (M, N), dweight (N,), dbias (N,)."""
    rows, columns = x.shape
    dx = torch.empty_like(x)
    stream = torch.cuda.current_stream()
    if columns < 512:
        dweight = torch.empty(columns, dtype=torch.float32, device=x.device)
        dbias = torch.empty_like(dweight)
        ct.launch(stream, (rows,), dx_kernel, (dy, x, weight, mean, rstd, dx, columns, 256))
        ct.launch(stream, (ct.cdiv(columns, 32),), dweight_kernel, (dy, x, mean, rstd, dweight, dbias, 32, 32))
        return dx, dweight, dbias
    c = 64 if columns % 64 == 0 else columns
    k = columns // c
    tile_c = 1 << (c - 1).bit_length()
    tile_k = 1 << (k - 1).bit_length()
    blocks = min(BLOCKS, rows)
    parts = torch.empty((2, blocks, columns), dtype=torch.float32, device=x.device)
    totals = torch.empty((2, columns), dtype=torch.float32, device=x.device)
    shaped = (dy.view(rows, k, c), x.view(rows, k, c), weight.view(1, k, c), mean, rstd, dx.view(rows, k, c),
              parts[0].view(blocks, k, c), parts[1].view(blocks, k, c))
    ct.launch(stream, (blocks,), fused_kernel, (*shaped, columns, tile_k, tile_c))
    ct.launch(stream, (ct.cdiv(columns, 32), 2), total_kernel, (parts, totals, BLOCKS, 32))
    return dx, totals[0], totals[1]
