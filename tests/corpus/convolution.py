"""Convolutions, stencils and pooling: outputs that depend on a neighbourhood."""

from __future__ import annotations

import cuda.tile as ct
import torch

from tests.corpus.example import Example, normal

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
        "moving_average",
        moving_average,
        lambda case, generator: {"x": normal(case, generator, 40)},
        lambda x: x.unfold(0, 8, 1).mean(1),
        ({},),
        covers="a view whose tiles overlap",
    ),
)
