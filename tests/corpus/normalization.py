"""Softmax, layer and RMS normalisation and cross entropy: rows reduced, then scaled."""

from __future__ import annotations

import math
from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Case, Example, integers, normal, power_of_two

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
NEG_INF = ct.PaddingMode.NEG_INF
EPS = 1e-5


@ct.kernel
def softmax_kernel(x, out, R: Size, T: Size):
    step = ct.bid(0)
    a = ct.load(x, index=(step, 0), shape=(R, T), padding_mode=NEG_INF).astype(ct.float32)
    rows = step * R + ct.arange(R, dtype=ct.int32)[:, None]
    a = ct.where(rows < x.shape[0], a, 0.0)  # rows beyond the end would give -inf - -inf
    e = ct.exp(a - ct.max(a, axis=1, keepdims=True))
    ct.store(out, index=(step, 0), tile=(e / ct.sum(e, axis=1, keepdims=True)).astype(out.dtype))


def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    tile = power_of_two(x.shape[1])
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], 4),), softmax_kernel, (x, out, 4, tile))
    return out


@ct.kernel
def layer_norm_kernel(x, weight, bias, out, mean, rstd, N: Size, T: Size):
    row = ct.bid(0)
    a = ct.load(x, index=(row, 0), shape=(1, T), padding_mode=ZERO).astype(ct.float32)
    center = ct.sum(a, axis=1, keepdims=True) / N
    inside = ct.arange(T, dtype=ct.int32)[None, :] < N
    apart = ct.where(inside, a - center, 0.0)
    scale = ct.rsqrt(ct.sum(apart * apart, axis=1, keepdims=True) / N + EPS)
    w = ct.load(weight, index=(0,), shape=(T,), padding_mode=ZERO).astype(ct.float32)
    b = ct.load(bias, index=(0,), shape=(T,), padding_mode=ZERO).astype(ct.float32)
    ct.store(out, index=(row, 0), tile=(apart * scale * w + b).astype(out.dtype))
    ct.store(mean, index=(row,), tile=center.reshape((1,)))
    ct.store(rstd, index=(row,), tile=scale.reshape((1,)))


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows, columns = x.shape
    out = torch.empty_like(x)
    mean = torch.empty(rows, dtype=torch.float32, device=x.device)
    rstd = torch.empty_like(mean)
    arguments = (x, weight, bias, out, mean, rstd, columns, power_of_two(columns))
    ct.launch(torch.cuda.current_stream(), (rows,), layer_norm_kernel, arguments)
    return out, mean, rstd


def layer_norm_reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
    mean, variance = x.mean(1), x.var(1, correction=0)
    out = torch.nn.functional.layer_norm(x, x.shape[1:], weight, bias, EPS)
    return out, mean, torch.rsqrt(variance + EPS)


@ct.kernel
def layer_norm_gradients_kernel(dy, x, mean, rstd, dw, db, R: Size, T: Size):
    """dw and db of a tile of rows and columns, added atomically."""
    i, j = ct.bid(0), ct.bid(1)
    g = ct.load(dy, index=(i, j), shape=(R, T), padding_mode=ZERO).astype(ct.float32)
    a = ct.load(x, index=(i, j), shape=(R, T), padding_mode=ZERO).astype(ct.float32)
    center = ct.load(mean, index=(i,), shape=(R,), padding_mode=ZERO)[:, None]
    scale = ct.load(rstd, index=(i,), shape=(R,), padding_mode=ZERO)[:, None]
    columns = j * T + ct.arange(T, dtype=ct.int32)
    ct.atomic_add(dw, columns, ct.sum(g * (a - center) * scale, axis=0))
    ct.atomic_add(db, columns, ct.sum(g, axis=0))


def layer_norm_gradients(dy: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    weight = torch.ones(x.shape[1], dtype=x.dtype, device=x.device)
    _, mean, rstd = layer_norm(x, weight, torch.zeros_like(weight))
    dw = torch.zeros(x.shape[1], dtype=torch.float32, device=x.device)
    db = torch.zeros_like(dw)
    grid = (ct.cdiv(x.shape[0], 4), ct.cdiv(x.shape[1], 32))
    arguments = (dy, x, mean, rstd, dw, db, 4, 32)
    ct.launch(torch.cuda.current_stream(), grid, layer_norm_gradients_kernel, arguments)
    return dw, db


def _gradients(dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    bias = torch.zeros_like(weight).requires_grad_()
    torch.nn.functional.layer_norm(x, x.shape[1:], weight, bias, EPS).backward(dy)
    assert x.grad is not None and weight.grad is not None and bias.grad is not None
    return x.grad, weight.grad, bias.grad


@ct.kernel
def cross_entropy_kernel(logits, labels, loss, gradient, T: Size):
    """The loss of a row and its gradient; a label of -100 counts for nothing."""
    row = ct.bid(0)
    steps = ct.num_tiles(logits, axis=1, shape=(1, T))
    label = ct.load(labels, index=(row,), shape=(1,)).item()
    top = ct.full((1, 1), -math.inf, ct.float32)
    total = ct.zeros((1, 1), ct.float32)
    for step in range(steps):
        a = ct.load(logits, index=(row, step), shape=(1, T), padding_mode=NEG_INF).astype(ct.float32)
        higher = ct.maximum(top, ct.max(a, axis=1, keepdims=True))
        total = total * ct.exp(top - higher) + ct.sum(ct.exp(a - higher), axis=1, keepdims=True)
        top = higher
    counted = label != -100
    chosen = ct.gather(logits, (row, label), mask=counted).astype(ct.float32)
    logsumexp = top.item() + ct.log(total.item())
    ct.store(loss, index=(row,), tile=ct.where(counted, logsumexp - chosen, 0.0))
    for step in range(steps):
        a = ct.load(logits, index=(row, step), shape=(1, T), padding_mode=NEG_INF).astype(ct.float32)
        columns = step * T + ct.arange(T, dtype=ct.int64)[None, :]
        g = ct.exp(a - logsumexp) - ct.where(columns == label, 1.0, 0.0)
        ct.store(gradient, index=(row, step), tile=ct.where(counted, g, 0.0).astype(gradient.dtype))


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows = logits.shape[0]
    loss, gradient = torch.empty(rows, dtype=torch.float32, device=logits.device), torch.empty_like(logits)
    ct.launch(torch.cuda.current_stream(), (rows,), cross_entropy_kernel, (logits, labels, loss, gradient, 32))
    return loss, gradient


def cross_entropy_inputs(case: Case, generator: torch.Generator) -> dict[str, Any]:
    labels = integers(generator, 0, case["N"], case["M"], dtype=torch.int64)
    labels[0] = -100
    return {"logits": normal(case, generator, case["M"], case["N"], scale=3.0), "labels": labels}


def cross_entropy_reference(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    loss = torch.nn.functional.cross_entropy(logits, labels, reduction="none", ignore_index=-100)
    hot = torch.zeros_like(logits).scatter_(1, labels.clamp(min=0)[:, None], 1.0)
    return loss, (logits.softmax(1) - hot) * (labels != -100)[:, None]


def _rows(*names: str) -> Any:
    """Inputs by name: `x`, `dy` are (M, N), `weight`, `bias` (N,)."""

    def make(case: Case, generator: torch.Generator) -> dict[str, Any]:
        shapes = {"weight": (case["N"],), "bias": (case["N"],)}
        return {name: normal(case, generator, *shapes.get(name, (case["M"], case["N"]))) for name in names}

    return make


EXAMPLES = (
    Example(
        "softmax",
        softmax,
        _rows("x"),
        lambda x: x.softmax(1),
        ({"M": 6, "N": 50}, {"M": 4, "N": 64, "dtype": "float16"}),
        covers="softmax in one pass",
    ),
    Example(
        "layer_norm",
        layer_norm,
        _rows("x", "weight", "bias"),
        layer_norm_reference,
        ({"M": 4, "N": 100}, {"M": 2, "N": 33, "dtype": "float16"}),
        covers="layer norm forward",
    ),
    Example(
        "layer_norm_gradients",
        layer_norm_gradients,
        _rows("dy", "x"),
        lambda dy, x: _gradients(dy, x, torch.ones(x.shape[1], dtype=x.dtype, device=x.device))[1:],
        ({"M": 10, "N": 50},),
        covers="layer norm backward with atomics",
    ),
    Example(
        "cross_entropy",
        cross_entropy,
        cross_entropy_inputs,
        cross_entropy_reference,
        ({"M": 5, "N": 75}, {"M": 3, "N": 64, "dtype": "float16"}),
        covers="cross entropy, gather of one element",
    ),
)
