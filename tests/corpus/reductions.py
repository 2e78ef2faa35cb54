"""Reductions: by a user function, and over blocks."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Case, Example, normal, power_of_two

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


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


def _matrix(case: Case, generator: torch.Generator) -> dict[str, Any]:
    return {"x": normal(case, generator, case["M"], case["N"])}


EXAMPLES = (
    Example(
        "moments",
        moments,
        _matrix,
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
