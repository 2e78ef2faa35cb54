"""Convolutions, stencils and pooling: outputs that depend on a neighbourhood."""

from __future__ import annotations

import math
from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Case, Example, normal

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def conv1d_kernel(x, weight, out, WIDTH: Size, C: Size, T: Size):
    """Causal and depthwise: out[c, t] sums weight[c, i] * x[c, t - WIDTH + 1 + i]."""
    channel, step = ct.bid(0), ct.bid(1)
    rows = channel * C + ct.arange(C, dtype=ct.int32)[:, None]
    times = step * T + ct.arange(T, dtype=ct.int32)[None, :]
    total = ct.zeros((C, T), ct.float32)
    for i in range(WIDTH):
        a = ct.gather(x, (rows, times - (WIDTH - 1) + i)).astype(ct.float32)
        total += a * ct.gather(weight, (rows, i)).astype(ct.float32)
    ct.store(out, index=(channel, step), tile=total.astype(out.dtype))


def conv1d_causal(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    grid = (ct.cdiv(x.shape[0], 4), ct.cdiv(x.shape[1], 32))
    ct.launch(torch.cuda.current_stream(), grid, conv1d_kernel, (x, weight, out, weight.shape[1], 4, 32))
    return out


def conv1d_reference(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    padded = torch.nn.functional.pad(x, (weight.shape[1] - 1, 0))
    return torch.nn.functional.conv1d(padded[None], weight[:, None], groups=x.shape[0])[0]


@ct.kernel
def conv2d_kernel(x, weight, out, KH: Size, KW: Size, TC: Size, TW: Size):
    """x (B, H, W, C), weight (KH, KW, C, O), out (B, H', W', O): one row of TW output pixels a block."""
    batch, row, step = ct.bid(0) // out.shape[1], ct.bid(0) % out.shape[1], ct.bid(1)
    columns = step * TW + ct.arange(TW, dtype=ct.int32)[:, None]
    total = ct.zeros((TW, TC), ct.float32)
    for i in range(KH):
        for j in range(KW):
            for c in range(ct.cdiv(x.shape[3], TC)):
                channels = c * TC + ct.arange(TC, dtype=ct.int32)[None, :]
                a = ct.gather(x, (batch, row + i, columns + j, channels))
                w = ct.load(weight, index=(i, j, c, ct.bid(2)), shape=(1, 1, TC, TC), padding_mode=ZERO)
                total = ct.mma(a, w.reshape((TC, TC)), total)
    result = total.astype(out.dtype).reshape((1, 1, TW, TC))
    ct.store(out, index=(batch, row, step, ct.bid(2)), tile=result)


def conv2d(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    (batch, height, width, _), (kh, kw, _, outs) = x.shape, weight.shape
    out = torch.empty(batch, height - kh + 1, width - kw + 1, outs, dtype=x.dtype, device=x.device)
    grid = (batch * out.shape[1], ct.cdiv(out.shape[2], 16), ct.cdiv(outs, 16))
    ct.launch(torch.cuda.current_stream(), grid, conv2d_kernel, (x, weight, out, kh, kw, 16, 16))
    return out


def conv2d_reference(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv2d(x.permute(0, 3, 1, 2), weight.permute(3, 2, 0, 1)).permute(0, 2, 3, 1)


def conv2d_inputs(case: Case, generator: torch.Generator) -> dict[str, Any]:
    weight = normal(case, generator, 3, 3, case["C"], case["O"], scale=0.2)
    return {"x": normal(case, generator, 2, 6, 21, case["C"]), "weight": weight}


@ct.kernel
def im2col_kernel(x, weight, out, KH: Size, KW: Size, STRIDE: Size, PAD: Size, TM: Size, TN: Size, TK: Size):
    """x (B, C, H, W), weight (O, C * KH * KW), out (B * H' * W', O): a product whose left operand is gathered."""
    height = (x.shape[2] + 2 * PAD - KH) // STRIDE + 1
    width = (x.shape[3] + 2 * PAD - KW) // STRIDE + 1
    pixels = ct.bid(0) * TM + ct.arange(TM, dtype=ct.int32)[:, None]
    batch, rest = pixels // (height * width), pixels % (height * width)
    top, left = rest // width * STRIDE - PAD, rest % width * STRIDE - PAD
    depth = x.shape[1] * KH * KW
    total = ct.zeros((TM, TN), ct.float32)
    for step in range(ct.cdiv(depth, TK)):
        k = step * TK + ct.arange(TK, dtype=ct.int32)[None, :]
        channel, tap = k // (KH * KW), k % (KH * KW)
        a = ct.gather(x, (batch, channel, top + tap // KW, left + tap % KW))
        w = ct.load(weight, index=(ct.bid(1), step), shape=(TN, TK), padding_mode=ZERO)
        total = ct.mma(a, w.transpose(), total)
    ct.store(out, index=(ct.bid(0), ct.bid(1)), tile=total.astype(out.dtype))


def conv2d_im2col(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    (batch, _, height, width), (outs, _, kh, kw) = x.shape, weight.shape
    stride, pad = 2, 1
    rows, columns = (height + 2 * pad - kh) // stride + 1, (width + 2 * pad - kw) // stride + 1
    out = torch.empty(batch * rows * columns, outs, dtype=x.dtype, device=x.device)
    grid = (ct.cdiv(out.shape[0], 16), ct.cdiv(outs, 16))
    arguments = (x, weight.reshape(outs, -1), out, kh, kw, stride, pad, 16, 16, 16)
    ct.launch(torch.cuda.current_stream(), grid, im2col_kernel, arguments)
    return out.reshape(batch, rows, columns, outs)


def im2col_inputs(case: Case, generator: torch.Generator) -> dict[str, Any]:
    weight = normal(case, generator, case["O"], case["C"], 3, 3, scale=0.2)
    return {"x": normal(case, generator, 2, case["C"], 7, 9), "weight": weight}


@ct.kernel
def stencil3d_kernel(x, out, T: Size):
    """The seven-point Laplacian of a volume whose border is 0; one line of the volume a block."""
    i, j, step = ct.bid(0), ct.bid(1), ct.bid(2)
    k = step * T + ct.arange(T, dtype=ct.int32)
    total = ct.gather(x, (i - 1, j, k)) + ct.gather(x, (i + 1, j, k))
    total += ct.gather(x, (i, j - 1, k)) + ct.gather(x, (i, j + 1, k))
    total += ct.gather(x, (i, j, k - 1)) + ct.gather(x, (i, j, k + 1))
    ct.scatter(out, (i, j, k), total - 6.0 * ct.gather(x, (i, j, k)))


def laplacian(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    grid = (x.shape[0], x.shape[1], ct.cdiv(x.shape[2], 16))
    ct.launch(torch.cuda.current_stream(), grid, stencil3d_kernel, (x, out, 16))
    return out


def laplacian_reference(x: torch.Tensor) -> torch.Tensor:
    padded = torch.nn.functional.pad(x, (1, 1, 1, 1, 1, 1))
    inner = slice(1, -1)
    total = -6 * x
    for axis in range(3):
        for shift in (1, -1):
            total = total + padded.roll(shift, axis)[inner, inner, inner]
    return total


@ct.kernel
def moving_average_kernel(x, out, WINDOW: Size, T: Size):
    """Windows that overlap, as tiles of a view whose steps are shorter than they."""
    view = x.tiled_view((WINDOW,), padding_mode=ZERO, traversal_steps=(1,))
    first = ct.bid(0) * T
    for i in range(first, min(first + T, out.shape[0])):
        ct.store(out, index=(i,), tile=ct.sum(view.load((i,)), keepdims=True) / WINDOW)


def moving_average(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape[0] - 7, dtype=x.dtype, device=x.device)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(out.shape[0], 8),), moving_average_kernel, (x, out, 8, 8))
    return out


@ct.kernel
def max_pool_kernel(x, out, TH: Size, TW: Size):
    """Pools 2 x 2 pixels, the last ones of an odd size alone."""
    channel, i, j = ct.bid(0), ct.bid(1), ct.bid(2)
    shape = (1, 2 * TH, 2 * TW)
    a = ct.load(x, index=(channel, i, j), shape=shape, padding_mode=ct.PaddingMode.NEG_INF)
    ct.store(out, index=(channel, i, j), tile=ct.max(a.reshape((1, TH, 2, TW, 2)), axis=(2, 4)))


def max_pool(x: torch.Tensor) -> torch.Tensor:
    channels, height, width = x.shape
    out = torch.empty(channels, ct.cdiv(height, 2), ct.cdiv(width, 2), dtype=x.dtype, device=x.device)
    grid = (channels, ct.cdiv(out.shape[1], 4), ct.cdiv(out.shape[2], 8))
    ct.launch(torch.cuda.current_stream(), grid, max_pool_kernel, (x, out, 4, 8))
    return out


def max_pool_reference(x: torch.Tensor) -> torch.Tensor:
    padded = torch.nn.functional.pad(x, (0, x.shape[2] % 2, 0, x.shape[1] % 2), value=-math.inf)
    return torch.nn.functional.max_pool2d(padded, 2)


EXAMPLES = (
    Example(
        "conv1d_causal",
        conv1d_causal,
        lambda case, generator: {"x": normal(case, generator, 6, 50), "weight": normal(case, generator, 6, 4)},
        conv1d_reference,
        ({}, {"dtype": "bfloat16"}),
        covers="1-D convolution",
    ),
    Example(
        "conv2d",
        conv2d,
        conv2d_inputs,
        conv2d_reference,
        ({"C": 20, "O": 24, "dtype": "float16"},),
        (2e-2, 2e-2),
        covers="2-D convolution",
    ),
    Example(
        "conv2d_im2col",
        conv2d_im2col,
        im2col_inputs,
        lambda x, weight: torch.nn.functional.conv2d(x, weight, stride=2, padding=1).permute(0, 2, 3, 1),
        ({"C": 3, "O": 18}, {"C": 5, "O": 8, "dtype": "float16"}),
        (1e-2, 1e-2),
        covers="convolution as a product with gathered pixels",
    ),
    Example(
        "laplacian",
        laplacian,
        lambda case, generator: {"x": normal(case, generator, 4, 5, 20)},
        laplacian_reference,
        ({},),
        covers="3-D stencil",
    ),
    Example(
        "moving_average",
        moving_average,
        lambda case, generator: {"x": normal(case, generator, 40)},
        lambda x: x.unfold(0, 8, 1).mean(1),
        ({},),
        covers="a view whose tiles overlap",
    ),
    Example(
        "max_pool",
        max_pool,
        lambda case, generator: {"x": normal(case, generator, 2, 11, 21)},
        max_pool_reference,
        ({},),
        covers="pooling by a reshape",
    ),
)
