"""Layer normalisation's backward pass in cuTile: one block a row, then one block for each 32 columns."""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def rows_kernel(x, dout, weight, dx, means, scales, N: Size, T: Size, EPS: ct.Constant[float]):
    row = ct.bid(0)
    a = ct.load(x, index=(row, 0), shape=(1, T), padding_mode=ZERO).astype(ct.float32)
    d = ct.load(dout, index=(row, 0), shape=(1, T), padding_mode=ZERO).astype(ct.float32)
    w = ct.load(weight, index=(0,), shape=(T,), padding_mode=ZERO).astype(ct.float32)
    inside = ct.arange(T, dtype=ct.int32) < N
    mean = ct.sum(a, axis=1, keepdims=True) / N
    centred = ct.where(inside, a - mean, 0.0)
    scale = ct.rsqrt(ct.sum(centred * centred, axis=1, keepdims=True) / N + EPS)
    normal = centred * scale
    weighted = d * w
    along = ct.sum(weighted * normal, axis=1, keepdims=True) / N
    offset = ct.sum(weighted, axis=1, keepdims=True) / N
    result = scale * (weighted - offset - normal * along)
    ct.store(dx, index=(row, 0), tile=result.astype(dx.dtype))
    ct.store(means, index=(row,), tile=mean.reshape((1,)))
    ct.store(scales, index=(row,), tile=scale.reshape((1,)))


@ct.kernel
def columns_kernel(x, dout, means, scales, dweight, dbias, R: Size, C: Size):
    column = ct.bid(0)
    weight = ct.zeros((C,), ct.float32)
    bias = ct.zeros((C,), ct.float32)
    for step in range(ct.num_tiles(x, axis=0, shape=(R, C))):
        a = ct.load(x, index=(step, column), shape=(R, C), padding_mode=ZERO).astype(ct.float32)
        d = ct.load(dout, index=(step, column), shape=(R, C), padding_mode=ZERO).astype(ct.float32)
        mean = ct.load(means, index=(step,), shape=(R,), padding_mode=ZERO)
        scale = ct.load(scales, index=(step,), shape=(R,), padding_mode=ZERO)
        normal = (a - mean[:, None]) * scale[:, None]
        weight = weight + ct.sum(d * normal, axis=0)
        bias = bias + ct.sum(d, axis=0)
    ct.store(dweight, index=(column,), tile=weight.astype(dweight.dtype))
    ct.store(dbias, index=(column,), tile=bias.astype(dbias.dtype))


def backward(x, dout, weight, eps):
    rows, columns = x.shape
    dx = torch.empty_like(x)
    dweight = torch.empty_like(weight)
    dbias = torch.empty_like(weight)
    means = torch.empty(rows, dtype=torch.float32, device=x.device)
    scales = torch.empty(rows, dtype=torch.float32, device=x.device)
    tile = 1 << (columns - 1).bit_length()
    stream = torch.cuda.current_stream()
    ct.launch(stream, (rows,), rows_kernel, (x, dout, weight, dx, means, scales, columns, tile, eps))
    arguments = (x, dout, means, scales, dweight, dbias, 16, 32)
    ct.launch(stream, (ct.cdiv(columns, 32),), columns_kernel, arguments)
    return dx, dweight, dbias
