"""Layer normalisation's backward pass in Triton: one program a row, then one program for each 32 columns."""

import torch
import triton
import triton.language as tl


@triton.jit
def rows_kernel(x, dout, weight, dx, means, scales, N, eps, T: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, T)
    inside = columns < N
    places = row * N + columns
    a = tl.load(x + places, mask=inside, other=0.0).to(tl.float32)
    d = tl.load(dout + places, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(a, axis=0) / N
    centred = tl.where(inside, a - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / N + eps)
    normal = centred * scale
    weighted = d * w
    along = tl.sum(weighted * normal, axis=0) / N
    offset = tl.sum(weighted, axis=0) / N
    result = scale * (weighted - offset - normal * along)
    tl.store(dx + places, result.to(dx.dtype.element_ty), mask=inside)
    tl.store(means + row, mean)
    tl.store(scales + row, scale)


@triton.jit
def columns_kernel(x, dout, means, scales, dweight, dbias, M, N, R: tl.constexpr, C: tl.constexpr):
    columns = tl.program_id(0) * C + tl.arange(0, C)
    weight = tl.zeros((C,), tl.float32)
    bias = tl.zeros((C,), tl.float32)
    for start in range(0, M, R):
        rows = start + tl.arange(0, R)
        mask = (rows < M)[:, None] & (columns < N)[None, :]
        places = rows[:, None] * N + columns[None, :]
        a = tl.load(x + places, mask=mask, other=0.0).to(tl.float32)
        d = tl.load(dout + places, mask=mask, other=0.0).to(tl.float32)
        mean = tl.load(means + rows, mask=rows < M, other=0.0)
        scale = tl.load(scales + rows, mask=rows < M, other=0.0)
        normal = (a - mean[:, None]) * scale[:, None]
        weight = weight + tl.sum(d * normal, axis=0)
        bias = bias + tl.sum(d, axis=0)
    tl.store(dweight + columns, weight.to(dweight.dtype.element_ty), mask=columns < N)
    tl.store(dbias + columns, bias.to(dbias.dtype.element_ty), mask=columns < N)


def backward(x, dout, weight, eps):
    rows, columns = x.shape
    dx = torch.empty_like(x)
    dweight = torch.empty_like(weight)
    dbias = torch.empty_like(weight)
    means = torch.empty(rows, dtype=torch.float32, device=x.device)
    scales = torch.empty(rows, dtype=torch.float32, device=x.device)
    tile = triton.next_power_of_2(columns)
    rows_kernel[(rows,)](x, dout, weight, dx, means, scales, columns, eps, T=tile)
    grid = (triton.cdiv(columns, 32),)
    columns_kernel[grid](x, dout, means, scales, dweight, dbias, rows, columns, R=16, C=32)
    return dx, dweight, dbias
