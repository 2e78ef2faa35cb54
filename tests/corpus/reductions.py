"""Reductions: sums, extremes and their places, the largest few, segments."""

from __future__ import annotations

import itertools
import math
from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Case, Example, integers, normal, power_of_two

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
NEG_INF = ct.PaddingMode.NEG_INF


@ct.kernel
def row_statistics_kernel(x, sums, products, lowest, highest, R: Size, T: Size):
    step = ct.bid(0)
    rows = step * R + ct.arange(R, dtype=ct.int32)[:, None]
    columns = ct.arange(T, dtype=ct.int32)[None, :]
    a = ct.gather(x, (rows, columns))
    ct.store(sums, index=(step,), tile=ct.sum(a, axis=1))
    ct.store(products, index=(step,), tile=ct.prod(ct.gather(x, (rows, columns), padding_value=1), axis=1))
    ct.store(lowest, index=(step,), tile=ct.min(ct.gather(x, (rows, columns), padding_value=math.inf), axis=1))
    ct.store(highest, index=(step,), tile=ct.max(ct.gather(x, (rows, columns), padding_value=-math.inf), axis=1))


def row_statistics(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    outs = tuple(torch.empty(x.shape[0], dtype=x.dtype, device=x.device) for _ in range(4))
    arguments = (x, *outs, 4, power_of_two(x.shape[1]))
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], 4),), row_statistics_kernel, arguments)
    return outs


@ct.kernel
def total_kernel(x, out, A: Size, B: Size, C: Size):
    """The sum over the last two axes at once, of a tensor of three."""
    i = ct.bid(0)
    total = ct.zeros((A,), ct.float32)
    for j in range(ct.num_tiles(x, axis=1, shape=(A, B, C))):
        for k in range(ct.num_tiles(x, axis=2, shape=(A, B, C))):
            a = ct.load(x, index=(i, j, k), shape=(A, B, C), padding_mode=ZERO)
            total += ct.sum(a.astype(ct.float32), axis=(1, 2))
    ct.store(out, index=(i,), tile=total)


def sum_of_two_axes(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], 2),), total_kernel, (x, out, 2, 4, 16))
    return out


@ct.kernel
def argmax_kernel(x, places, values, T: Size):
    """The first largest element of a row of any length."""
    row = ct.bid(0)
    best = ct.full((1,), -math.inf, ct.float32)
    place = ct.zeros((1,), ct.int32)
    for step in range(ct.num_tiles(x, axis=1, shape=(1, T))):
        a = ct.load(x, index=(row, step), shape=(1, T), padding_mode=NEG_INF)
        top = ct.max(a, axis=1)
        found = ct.argmax(a, axis=1).astype(ct.int32) + step * T
        place = ct.where(top > best, found, place)
        best = ct.maximum(best, top)
    ct.store(places, index=(row,), tile=place)
    ct.store(values, index=(row,), tile=best)


def argmax(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    places = torch.empty(x.shape[0], dtype=torch.int32, device=x.device)
    values = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), argmax_kernel, (x, places, values, 32))
    return places, values


@ct.kernel
def top_k_kernel(x, values, places, K: Size, T: Size):
    row = ct.bid(0)
    columns = ct.arange(T, dtype=ct.int32)[None, :]
    a = ct.load(x, index=(row, 0), shape=(1, T), padding_mode=NEG_INF)
    for rank in range(K):
        place = ct.argmax(a, axis=1, keepdims=True).astype(ct.int32)
        ct.store(values, index=(row, rank), tile=ct.max(a, axis=1, keepdims=True))
        ct.store(places, index=(row, rank), tile=place)
        a = ct.where(columns == place, -math.inf, a)


def top_k(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    values = torch.empty(x.shape[0], k, dtype=x.dtype, device=x.device)
    places = torch.empty(x.shape[0], k, dtype=torch.int32, device=x.device)
    arguments = (x, values, places, k, power_of_two(x.shape[1]))
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), top_k_kernel, arguments)
    return values, places


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
def segments_kernel(x, offsets, sums, tops, T: Size):
    """Sum and largest of x[offsets[s]:offsets[s + 1]]; an empty segment gives 0 and -inf."""
    segment = ct.bid(0)
    first = ct.load(offsets, index=(segment,), shape=()).item()
    last = ct.load(offsets, index=(segment + 1,), shape=()).item()
    total = ct.zeros((T,), ct.float32)
    top = ct.full((T,), -math.inf, ct.float32)
    for start in range(first, last, T):
        places = start + ct.arange(T, dtype=ct.int32)
        mine = places < last
        total += ct.gather(x, places, mask=mine)
        top = ct.maximum(top, ct.gather(x, places, mask=mine, padding_value=-math.inf))
    ct.store(sums, index=(segment,), tile=ct.sum(total, keepdims=True))
    ct.store(tops, index=(segment,), tile=ct.max(top, keepdims=True))


def segmented_reduce(x: torch.Tensor, offsets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    count = offsets.shape[0] - 1
    sums, tops = (torch.empty(count, dtype=torch.float32, device=x.device) for _ in range(2))
    ct.launch(torch.cuda.current_stream(), (count,), segments_kernel, (x, offsets, sums, tops, 16))
    return sums, tops


def segment_inputs(case: Case, generator: torch.Generator) -> dict[str, Any]:
    sizes = case["sizes"]
    offsets = torch.tensor([0, *sizes], device=generator.device).cumsum(0).to(torch.int32)
    return {"x": normal(case, generator, sum(sizes)), "offsets": offsets}


def segment_reference(x: torch.Tensor, offsets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    cuts = offsets.tolist()
    pieces = [x[low:high] for low, high in itertools.pairwise(cuts)]
    low = torch.tensor([-math.inf], dtype=x.dtype, device=x.device)
    return torch.stack([piece.sum() for piece in pieces]), torch.stack([torch.cat((p, low)).max() for p in pieces])


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


@ct.kernel
def population_kernel(x, out, T: Size):
    """Bits set in each row of int32."""
    row = ct.bid(0)
    total = ct.zeros((1, T), ct.int32)
    for step in range(ct.num_tiles(x, axis=1, shape=(1, T))):
        a = ct.bitcast(ct.load(x, index=(row, step), shape=(1, T), padding_mode=ZERO), ct.uint32)
        a = a - ((a >> 1) & 0x55555555)
        a = (a & 0x33333333) + ((a >> 2) & 0x33333333)
        a = (a + (a >> 4)) & 0x0F0F0F0F
        total += ((a * 0x01010101) >> 24).astype(ct.int32)
    ct.store(out, index=(row,), tile=ct.sum(total, axis=1))


def population(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape[0], dtype=torch.int32, device=x.device)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), population_kernel, (x, out, 16))
    return out


def _matrix(case: Case, generator: torch.Generator) -> dict[str, Any]:
    return {"x": normal(case, generator, case["M"], case["N"])}


def _top_k_reference(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    values, places = x.sort(dim=1, descending=True, stable=True)
    return values[:, :k], places[:, :k]


EXAMPLES = (
    Example(
        "row_statistics",
        row_statistics,
        _matrix,
        lambda x: (x.sum(1), x.prod(1), x.amin(1), x.amax(1)),
        ({"M": 7, "N": 19},),
        covers="sum, prod, min and max with padding of each",
    ),
    Example(
        "sum_of_two_axes",
        sum_of_two_axes,
        lambda case, generator: {"x": normal(case, generator, 3, 9, 20)},
        lambda x: x.sum((1, 2)),
        ({"dtype": "float16"},),
        covers="a reduction over two axes",
    ),
    Example(
        "argmax",
        argmax,
        lambda case, generator: {"x": integers(generator, 0, 20, 4, 90, dtype=torch.float32)},
        lambda x: (x.argmax(1), x.amax(1)),
        ({},),
        covers="argmax with ties",
    ),
    Example(
        "top_k",
        top_k,
        lambda case, generator: {**_matrix(case, generator), "k": 5},
        _top_k_reference,
        ({"M": 3, "N": 50},),
        covers="top-k",
    ),
    Example(
        "moments",
        moments,
        _matrix,
        lambda x: (x.mean(1), x.var(1, correction=0)),
        ({"M": 3, "N": 50},),
        covers="a reduction with a user function of three values",
    ),
    Example(
        "segmented_reduce",
        segmented_reduce,
        segment_inputs,
        segment_reference,
        ({"sizes": (3, 0, 40, 16, 1)},),
        covers="segmented reduce, loops that depend on data",
    ),
    Example(
        "norm_last_block",
        norm_last_block,
        lambda case, generator: {"x": normal(case, generator, case["N"])},
        lambda x: x.norm()[None],
        ({"N": 300}, {"N": 20}),
        covers="the last block reduces, by an atomic counter",
    ),
    Example(
        "population",
        population,
        lambda case, generator: {"x": integers(generator, -(2**31), 2**31, 3, 40, dtype=torch.int32)},
        lambda x: torch.stack([(x.long() >> bit) & 1 for bit in range(32)]).sum((0, 2)),
        ({},),
        covers="shifts and masks of uint32",
    ),
)
