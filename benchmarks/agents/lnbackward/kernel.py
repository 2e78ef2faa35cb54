"""Backward of layer norm in cuTile, before tuning."""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


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
    dweight = torch.empty(columns, dtype=torch.float32, device=x.device)
    dbias = torch.empty_like(dweight)
    stream = torch.cuda.current_stream()
    ct.launch(stream, (rows,), dx_kernel, (dy, x, weight, mean, rstd, dx, columns, 256))
    ct.launch(stream, (ct.cdiv(columns, 32),), dweight_kernel, (dy, x, mean, rstd, dweight, dbias, 32, 32))
    return dx, dweight, dbias
