"""Layer normalisation: rows reduced, then scaled, and its gradients."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Case, Example, normal, power_of_two

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
NEG_INF = ct.PaddingMode.NEG_INF
EPS = 1e-5


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


def _rows(*names: str) -> Any:
    """Inputs by name: `x`, `dy` are (M, N), `weight`, `bias` (N,)."""

    def make(case: Case, generator: torch.Generator) -> dict[str, Any]:
        shapes = {"weight": (case["N"],), "bias": (case["N"],)}
        return {name: normal(case, generator, *shapes.get(name, (case["M"], case["N"]))) for name in names}

    return make


EXAMPLES = (
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
)
