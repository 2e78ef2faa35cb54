"""Gathers and scatters by index: lookups, compressed rows, routing of tokens."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Case, Example, normal

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def permute_rows_kernel(x, source, target, out, T: Size, D: Size):
    """out[target[i]] = x[source[i]], a tile of rows at a time; both lists hold no row twice."""
    i = ct.bid(0)
    places = ct.load(source, index=(i,), shape=(T,))
    moved = ct.load(target, index=(i,), shape=(T,))
    for step in range(ct.cdiv(x.shape[1], D)):
        rows = ct.load_advanced_indexing(x, (places, ct.Slice(step * D, D)), padding_mode=ZERO)
        ct.store_advanced_indexing(out, (moved, ct.Slice(step * D, D)), rows)


def permute_rows(x: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Takes a multiple of 4 rows."""
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (x.shape[0] // 4,), permute_rows_kernel, (x, source, target, out, 4, 16))
    return out


def permute_rows_reference(x: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    out[target.long()] = x[source.long()]
    return out


@ct.kernel
def experts_kernel(x, weights, sorted_tokens, tile_expert, gains, out, TOP: Size, TM: Size, TN: Size, TK: Size):
    """Tiles of one expert each: out[t] = gains[t] * x[t / TOP] @ weights[expert]. Padding is a row too far."""
    tile, column = ct.bid(0), ct.bid(1)
    tokens = ct.load(sorted_tokens, index=(tile,), shape=(TM,))
    expert = ct.load(tile_expert, index=(tile,), shape=()).item()
    total = ct.zeros((TM, TN), ct.float32)
    for step in range(ct.cdiv(x.shape[1], TK)):
        depth = step * TK + ct.arange(TK, dtype=ct.int32)
        a = ct.gather(x, (tokens[:, None] // TOP, depth[None, :]))
        w = ct.load(weights, index=(expert, step, column), shape=(1, TK, TN), padding_mode=ZERO)
        total = ct.mma(a, w.reshape((TK, TN)), total)
    value = total * ct.gather(gains, tokens)[:, None]
    across = column * TN + ct.arange(TN, dtype=ct.int32)
    ct.scatter(out, (tokens[:, None], across[None, :]), value.astype(out.dtype))


def experts(x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor, gains: torch.Tensor) -> torch.Tensor:
    """Each token's product with the weights of the experts that it chose, (tokens * TOP, N)."""
    tokens, top = chosen.shape
    tile, flat = 16, chosen.reshape(-1).long()
    order, lists, owners = torch.argsort(flat, stable=True), [], []
    for expert in range(weights.shape[0]):
        mine = order[flat[order] == expert]
        missing = -mine.shape[0] % tile
        lists.append(torch.cat((mine, mine.new_full((missing,), tokens * top))))
        owners += [expert] * (lists[-1].shape[0] // tile)
    sorted_tokens = torch.cat(lists).to(torch.int32)
    tile_expert = torch.tensor(owners, dtype=torch.int32).to(x.device)
    out = torch.empty(tokens * top, weights.shape[2], dtype=x.dtype, device=x.device)
    grid = (len(owners), ct.cdiv(out.shape[1], 32))
    arguments = (x, weights, sorted_tokens, tile_expert, gains.reshape(-1), out, top, tile, 32, 16)
    ct.launch(torch.cuda.current_stream(), grid, experts_kernel, arguments)
    return out


def experts_inputs(case: Case, generator: torch.Generator) -> dict[str, Any]:
    tokens, count, top = 19, 4, 2
    scores = torch.rand(tokens, count, generator=generator, device=generator.device)
    gains, chosen = scores.softmax(1).topk(top)
    return {
        "x": normal(case, generator, tokens, 40),
        "weights": normal(case, generator, count, 40, 48, scale=0.2),
        "chosen": chosen.int(),
        "gains": gains,
    }


def experts_reference(
    x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor, gains: torch.Tensor
) -> torch.Tensor:
    each = x.repeat_interleave(chosen.shape[1], 0)[:, None] @ weights[chosen.reshape(-1).long()]
    return each[:, 0] * gains.reshape(-1, 1)


EXAMPLES = (
    Example(
        "permute_rows",
        permute_rows,
        lambda case, generator: {
            "x": normal(case, generator, 12, 24),
            "source": torch.randperm(12, generator=generator).int(),
            "target": torch.randperm(12, generator=generator).int(),
        },
        permute_rows_reference,
        ({}, {"dtype": "float16"}),
        covers="advanced indexing",
    ),
    Example(
        "experts",
        experts,
        experts_inputs,
        experts_reference,
        ({"dtype": "float16"},),
        (1e-2, 1e-2),
        covers="T7, a mixture of experts",
    ),
)
