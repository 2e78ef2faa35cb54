"""Kernels on rows: norms and their gradients, reductions by a user function and over blocks, scans."""

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


EXAMPLES: tuple[Example, ...] = (
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


def joined_moments(count, mean, square, other_count, other_mean, other_square):
    """Count, mean and sum of squared differences of two sets joined."""
    both = count + other_count
    share = other_count / ct.maximum(both, 1.0)
    apart = other_mean - mean
    return both, mean + apart * share, square + other_square + apart * apart * count * share


@ct.kernel
def moments_kernel(x, means, variances, T: Size):
    row = ct.bid(0)
    columns = ct.arange(T, dtype=ct.int32)[None, :]
    inside = columns < x.shape[1]
    a = ct.load(x, index=(row, 0), shape=(1, T), padding_mode=ZERO).astype(ct.float32)
    ones = ct.where(inside, ct.ones((1, T), ct.float32), 0.0)
    start = (ones, a, ct.zeros((1, T), ct.float32))
    count, mean, square = ct.reduce(start, 1, joined_moments, (0.0, 0.0, 0.0))
    ct.store(means, index=(row,), tile=mean)
    ct.store(variances, index=(row,), tile=square / count)


def moments(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    means, variances = (torch.empty(x.shape[0], dtype=torch.float32, device=x.device) for _ in range(2))
    arguments = (x, means, variances, power_of_two(x.shape[1]))
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), moments_kernel, arguments)
    return means, variances


@ct.kernel
def norm_last_block_kernel(x, part, arrived, out, T: Size, P: Size):
    """The Euclidean norm; the block that arrives last adds up what all have left in `part`."""
    i = ct.bid(0)
    a = ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO).astype(ct.float32)
    ct.store(part, index=(i,), tile=ct.sum(a * a, keepdims=True))
    before = ct.atomic_add(arrived, 0, 1)
    if before == ct.num_blocks(0) - 1:
        total = ct.sum(ct.load(part, index=(0,), shape=(P,), padding_mode=ZERO), keepdims=True)
        ct.store(out, index=(0,), tile=ct.sqrt(total))


def norm_last_block(x: torch.Tensor) -> torch.Tensor:
    blocks = ct.cdiv(x.shape[0], 32)
    part = torch.empty(blocks, dtype=torch.float32, device=x.device)
    out = torch.empty(1, dtype=torch.float32, device=x.device)
    arrived = torch.zeros(1, dtype=torch.int32, device=x.device)
    arguments = (x, part, arrived, out, 32, power_of_two(blocks))
    ct.launch(torch.cuda.current_stream(), (blocks,), norm_last_block_kernel, arguments)
    return out


EXAMPLES += (
    Example(
        "moments",
        moments,
        _rows("x"),
        lambda x: (x.mean(1), x.var(1, correction=0)),
        ({"M": 3, "N": 50},),
        covers="a reduction with a user function of three values",
    ),
    Example(
        "norm_last_block",
        norm_last_block,
        lambda case, generator: {"x": normal(case, generator, case["N"])},
        lambda x: x.norm()[None],
        ({"N": 300}, {"N": 20}),
        covers="the last block reduces, by an atomic counter",
    ),
)


@ct.kernel
def reverse_kernel(x, sums, products, T: Size):
    column = ct.bid(0)
    a = ct.load(x, index=(0, column), shape=(T, 1), padding_mode=ZERO)
    inside = ct.arange(T, dtype=ct.int32)[:, None] < x.shape[0]
    ct.store(sums, index=(0, column), tile=ct.cumsum(a, axis=0, reverse=True))
    ct.store(products, index=(0, column), tile=ct.cumprod(ct.where(inside, a, 1.0), axis=0, reverse=True))


def reverse_scans(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    sums, products = torch.empty_like(x), torch.empty_like(x)
    arguments = (x, sums, products, power_of_two(x.shape[0]))
    ct.launch(torch.cuda.current_stream(), (x.shape[1],), reverse_kernel, arguments)
    return sums, products


def after(decay, state, other_decay, other_state):
    """Two steps h -> decay * h + state, one after the other."""
    return decay * other_decay, state * other_decay + other_state


@ct.kernel
def recurrence_kernel(decay, x, out, T: Size):
    """h[t] = decay[t] * h[t - 1] + x[t] along rows."""
    row = ct.bid(0)
    state = ct.zeros((1, 1), ct.float32)
    for step in range(ct.num_tiles(x, axis=1, shape=(1, T))):
        a = ct.load(decay, index=(row, step), shape=(1, T), padding_mode=ZERO)
        b = ct.load(x, index=(row, step), shape=(1, T), padding_mode=ZERO)
        gain, local = ct.scan((a, b), 1, after, (1.0, 0.0))
        h = local + gain * state
        ct.store(out, index=(row, step), tile=h)
        state = ct.extract(h, (0, T - 1), shape=(1, 1))


def recurrence(decay: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), recurrence_kernel, (decay, x, out, 16))
    return out


def recurrence_reference(decay: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    out, state = torch.empty_like(x), torch.zeros_like(x[:, 0])
    for step in range(x.shape[1]):
        state = decay[:, step] * state + x[:, step]
        out[:, step] = state
    return out


EXAMPLES += (
    Example(
        "reverse_scans",
        reverse_scans,
        _rows("x"),
        lambda x: (x.flip(0).cumsum(0).flip(0), x.flip(0).cumprod(0).flip(0)),
        ({"M": 13, "N": 3},),
        covers="cumsum and cumprod in reverse",
    ),
    Example(
        "recurrence",
        recurrence,
        lambda case, generator: {**_rows("x")(case, generator), "decay": torch.rand(2, 50, generator=generator)},
        recurrence_reference,
        ({"M": 2, "N": 50},),
        covers="an associative scan of two values",
    ),
)
