"""Running sums and other scans, within a tile and over many blocks; sorting."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Case, Example, integers, normal, power_of_two

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


@ct.kernel
def tile_sums_kernel(x, sums, T: Size):
    i = ct.bid(0)
    ct.store(sums, index=(i,), tile=ct.sum(ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO), keepdims=True))


@ct.kernel
def scan_sums_kernel(sums, before, P: Size):
    """The sum of all tiles before each."""
    a = ct.load(sums, index=(0,), shape=(P,), padding_mode=ZERO)
    ct.store(before, index=(0,), tile=ct.cumsum(a) - a)


@ct.kernel
def scan_tiles_kernel(x, before, out, T: Size):
    i = ct.bid(0)
    a = ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO)
    ct.store(out, index=(i,), tile=ct.cumsum(a) + ct.load(before, index=(i,), shape=(1,)))


def scan_in_stages(x: torch.Tensor) -> torch.Tensor:
    tile, stream = 32, torch.cuda.current_stream()
    blocks = ct.cdiv(x.shape[0], tile)
    sums, out = torch.empty(blocks, dtype=x.dtype, device=x.device), torch.empty_like(x)
    before = torch.empty_like(sums)
    ct.launch(stream, (blocks,), tile_sums_kernel, (x, sums, tile))
    ct.launch(stream, (1,), scan_sums_kernel, (sums, before, power_of_two(blocks)))
    ct.launch(stream, (blocks,), scan_tiles_kernel, (x, before, out, tile))
    return out


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
        "scan_in_stages",
        scan_in_stages,
        lambda case, generator: {"x": integers(generator, -9, 10, case["N"], dtype=torch.int64)},
        lambda x: x.cumsum(0),
        ({"N": 300}, {"N": 32}),
        covers="a scan of many blocks in three stages",
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
