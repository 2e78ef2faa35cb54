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


def flagged_sum(flag, value, other_flag, other_value):
    """A sum that starts afresh where a flag is set."""
    return flag | other_flag, ct.where(other_flag != 0, other_value, value + other_value)


@ct.kernel
def segmented_scan_kernel(x, heads, out, T: Size):
    a = ct.load(x, index=(0,), shape=(T,), padding_mode=ZERO)
    flags = ct.load(heads, index=(0,), shape=(T,), padding_mode=ZERO)
    _, sums = ct.scan((flags, a), 0, flagged_sum, (0, 0.0))
    ct.store(out, index=(0,), tile=sums)


def segmented_scan(x: torch.Tensor, heads: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    arguments = (x, heads, out, power_of_two(x.shape[0]))
    ct.launch(torch.cuda.current_stream(), (1,), segmented_scan_kernel, arguments)
    return out


def segmented_scan_reference(x: torch.Tensor, heads: torch.Tensor) -> torch.Tensor:
    running = x.cumsum(0)
    segment = heads.long().cumsum(0)
    first = torch.tensor([int((segment == number).nonzero()[0]) for number in segment.tolist()], device=x.device)
    return running - running[first] + x[first]


@ct.kernel
def compaction_kernel(x, kept, count, T: Size):
    """The positive elements of x, moved to the front of `kept` in their order; zeros after them."""
    base = 0
    for step in range(ct.num_tiles(x, axis=0, shape=(T,))):
        a = ct.load(x, index=(step,), shape=(T,), padding_mode=ZERO)
        keep = a > 0.0
        ones = keep.astype(ct.int32)
        places = base + ct.cumsum(ones) - ones
        ct.scatter(kept, places, a, mask=keep)
        base += ct.sum(ones)
    ct.store(count, index=(0,), tile=base)
    for start in range(base, x.shape[0], T):
        ct.scatter(kept, start + ct.arange(T, dtype=ct.int32), 0.0)


def compaction(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    kept, count = torch.empty_like(x), torch.empty(1, dtype=torch.int32, device=x.device)
    ct.launch(torch.cuda.current_stream(), (1,), compaction_kernel, (x, kept, count, 16))
    return kept, count


def compaction_reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    kept = torch.zeros_like(x)
    chosen = x[x > 0]
    kept[: chosen.shape[0]] = chosen
    return kept, torch.tensor([chosen.shape[0]], device=x.device)


def _matrix(case: Case, generator: torch.Generator) -> dict[str, Any]:
    return {"x": normal(case, generator, case["M"], case["N"])}


def _vector(case: Case, generator: torch.Generator) -> dict[str, Any]:
    return {"x": normal(case, generator, case["N"])}


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
    Example(
        "segmented_scan",
        segmented_scan,
        lambda case, generator: {**_vector(case, generator), "heads": (torch.arange(60) % 17 == 0).int()},
        segmented_scan_reference,
        ({"N": 60},),
        covers="a segmented scan",
    ),
    Example("compaction", compaction, _vector, compaction_reference, ({"N": 70},), covers="stream compaction"),
)
