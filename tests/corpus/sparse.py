"""Gathers and scatters by index: lookups, compressed rows, routing of tokens."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Case, Example, integers, normal

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def embedding_kernel(table, tokens, out, T: Size, D: Size):
    i, j = ct.bid(0), ct.bid(1)
    rows = ct.load(tokens, index=(i,), shape=(T,), padding_mode=ZERO)
    columns = j * D + ct.arange(D, dtype=ct.int32)
    ct.store(out, index=(i, j), tile=ct.gather(table, (rows[:, None], columns[None, :])))


def embedding(table: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    out = torch.empty(tokens.shape[0], table.shape[1], dtype=table.dtype, device=table.device)
    grid = (ct.cdiv(out.shape[0], 8), ct.cdiv(out.shape[1], 32))
    ct.launch(torch.cuda.current_stream(), grid, embedding_kernel, (table, tokens, out, 8, 32))
    return out


def embedding_inputs(case: Case, generator: torch.Generator) -> dict[str, Any]:
    kind = getattr(torch, case.get("index", "int32"))
    return {"table": normal(case, generator, 30, 40), "tokens": integers(generator, 0, 30, 21, dtype=kind)}


@ct.kernel
def scatter_add_kernel(gradient, tokens, table, T: Size, D: Size):
    i, j = ct.bid(0), ct.bid(1)
    rows = ct.load(tokens, index=(i,), shape=(T,), padding_mode=ZERO)
    inside = (i * T + ct.arange(T, dtype=ct.int32) < tokens.shape[0])[:, None]
    g = ct.load(gradient, index=(i, j), shape=(T, D), padding_mode=ZERO).astype(ct.float32)
    columns = j * D + ct.arange(D, dtype=ct.int32)
    ct.atomic_add(table, (rows[:, None], columns[None, :]), ct.where(inside, g, 0.0))


def embedding_backward(gradient: torch.Tensor, tokens: torch.Tensor, rows: int) -> torch.Tensor:
    table = torch.zeros(rows, gradient.shape[1], dtype=torch.float32, device=gradient.device)
    grid = (ct.cdiv(gradient.shape[0], 4), ct.cdiv(gradient.shape[1], 16))
    ct.launch(torch.cuda.current_stream(), grid, scatter_add_kernel, (gradient, tokens, table, 4, 16))
    return table


def scatter_add_reference(gradient: torch.Tensor, tokens: torch.Tensor, rows: int) -> torch.Tensor:
    table = torch.zeros(rows, gradient.shape[1], dtype=gradient.dtype, device=gradient.device)
    return table.index_add(0, tokens.long(), gradient)


@ct.kernel
def spmm_kernel(values, columns, offsets, dense, out, T: Size, D: Size):
    """A row of a CSR matrix times a tile of columns of a dense one."""
    row, step = ct.bid(0), ct.bid(1)
    first = ct.load(offsets, index=(row,), shape=()).item()
    last = ct.load(offsets, index=(row + 1,), shape=()).item()
    across = step * D + ct.arange(D, dtype=ct.int32)[None, :]
    total = ct.zeros((D,), ct.float32)
    for start in range(first, last, T):
        places = start + ct.arange(T, dtype=ct.int32)
        mine = places < last
        weights = ct.gather(values, places, mask=mine)
        chosen = ct.gather(columns, places, mask=mine)
        total += ct.sum(weights[:, None] * ct.gather(dense, (chosen[:, None], across)), axis=0)
    ct.store(out, index=(row, step), tile=total[None, :])


def spmm(values: torch.Tensor, columns: torch.Tensor, offsets: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
    rows = offsets.shape[0] - 1
    out = torch.empty(rows, dense.shape[1], dtype=torch.float32, device=dense.device)
    grid = (rows, ct.cdiv(dense.shape[1], 32))
    ct.launch(torch.cuda.current_stream(), grid, spmm_kernel, (values, columns, offsets, dense, out, 8, 32))
    return out


def spmm_inputs(case: Case, generator: torch.Generator) -> dict[str, Any]:
    matrix = normal(case, generator, 7, 26)
    matrix[torch.rand(7, 26, generator=generator, device=generator.device) < 0.6] = 0.0
    matrix[3] = 0.0
    columns = matrix.nonzero()[:, 1].int()
    counts = torch.cat((torch.zeros(1, device=matrix.device), (matrix != 0).sum(1)))
    return {
        "values": matrix[matrix != 0],
        "columns": columns,
        "offsets": counts.cumsum(0).int(),
        "dense": normal(case, generator, 26, 40),
    }


def spmm_reference(
    values: torch.Tensor, columns: torch.Tensor, offsets: torch.Tensor, dense: torch.Tensor
) -> torch.Tensor:
    rows = torch.repeat_interleave(offsets.diff().long())
    out = torch.zeros(offsets.shape[0] - 1, dense.shape[1], dtype=dense.dtype, device=dense.device)
    return out.index_add(0, rows, values[:, None] * dense[columns.long()])


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


@ct.kernel
def paged_kernel(pages, table, lengths, out, PAGE: Size, D: Size):
    """The mean over the rows of a sequence that lie on pages; table[s, i] is the page of its rows from i * PAGE."""
    sequence = ct.bid(0)
    length = ct.load(lengths, index=(sequence,), shape=()).item()
    total = ct.zeros((D,), ct.float32)
    for i in range(ct.cdiv(length, PAGE)):
        page = ct.load(table, index=(sequence, i), shape=()).item()
        rows = i * PAGE + ct.arange(PAGE, dtype=ct.int32)[:, None]
        a = ct.load(pages, index=(page, 0, 0), shape=(1, PAGE, D), padding_mode=ZERO).reshape((PAGE, D))
        total += ct.sum(ct.where(rows < length, a, 0.0), axis=0)
    ct.store(out, index=(sequence, 0), tile=(total / length)[None, :])


def paged_mean(pages: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    out = torch.empty(lengths.shape[0], pages.shape[2], dtype=pages.dtype, device=pages.device)
    arguments = (pages, table, lengths, out, pages.shape[1], pages.shape[2])
    ct.launch(torch.cuda.current_stream(), (lengths.shape[0],), paged_kernel, arguments)
    return out


def paged_inputs(case: Case, generator: torch.Generator) -> dict[str, Any]:
    table = torch.randperm(12, generator=generator, device=generator.device).int().reshape(3, 4)
    lengths = torch.tensor([5, 32, 17], dtype=torch.int32, device=generator.device)
    return {"pages": normal(case, generator, 12, 8, 16), "table": table, "lengths": lengths}


def paged_reference(pages: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    rows = pages[table.long()].reshape(table.shape[0], -1, pages.shape[2])
    return torch.stack([row[:length].mean(0) for row, length in zip(rows, lengths.tolist(), strict=True)])


EXAMPLES = (
    Example(
        "embedding",
        embedding,
        embedding_inputs,
        lambda table, tokens: table[tokens.long()],
        ({}, {"index": "int64", "dtype": "float16"}),
        covers="embedding lookup",
    ),
    Example(
        "embedding_backward",
        embedding_backward,
        lambda case, generator: {
            "gradient": normal(case, generator, 21, 24),
            "tokens": integers(generator, 0, 6, 21, dtype=torch.int32),
            "rows": 6,
        },
        scatter_add_reference,
        ({},),
        covers="scatter-add",
    ),
    Example("spmm", spmm, spmm_inputs, spmm_reference, ({},), covers="CSR SpMM, loops that depend on data"),
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
    Example("paged_mean", paged_mean, paged_inputs, paged_reference, ({},), covers="pages found through a table"),
)
