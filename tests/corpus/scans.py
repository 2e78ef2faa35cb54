"""Running products and recurrences within a tile and along rows."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Case, Example, normal, power_of_two

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


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


def _matrix(case: Case, generator: torch.Generator) -> dict[str, Any]:
    return {"x": normal(case, generator, case["M"], case["N"])}


EXAMPLES = (
    Example(
        "reverse_scans",
        reverse_scans,
        _matrix,
        lambda x: (x.flip(0).cumsum(0).flip(0), x.flip(0).cumprod(0).flip(0)),
        ({"M": 13, "N": 3},),
        covers="cumsum and cumprod in reverse",
    ),
    Example(
        "recurrence",
        recurrence,
        lambda case, generator: {**_matrix(case, generator), "decay": torch.rand(2, 50, generator=generator)},
        recurrence_reference,
        ({"M": 2, "N": 50},),
        covers="an associative scan of two values",
    ),
)
