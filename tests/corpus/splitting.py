"""Matrix products whose work is dealt out otherwise than one output tile a block."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Case, Example, normal
from tests.corpus.products import factors, product

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
M, N, K = 16, 32, 16


@ct.kernel
def split_kernel(a, b, part, STEPS: Size, TM: Size, TN: Size, TK: Size):
    row, column, split = ct.bid(0), ct.bid(1), ct.bid(2)
    total = ct.zeros((TM, TN), ct.float32)
    last = min((split + 1) * STEPS, ct.num_tiles(a, axis=1, shape=(TM, TK)))
    for step in range(split * STEPS, last):
        left = ct.load(a, index=(row, step), shape=(TM, TK), padding_mode=ZERO)
        right = ct.load(b, index=(step, column), shape=(TK, TN), padding_mode=ZERO)
        total = ct.mma(left, right, total)
    ct.store(part, index=(split, row, column), tile=total[None])


@ct.kernel
def add_parts_kernel(part, out, TM: Size, TN: Size):
    row, column = ct.bid(0), ct.bid(1)
    total = ct.zeros((1, TM, TN), ct.float32)
    for split in range(part.shape[0]):
        total += ct.load(part, index=(split, row, column), shape=(1, TM, TN), padding_mode=ZERO)
    ct.store(out, index=(row, column), tile=total.reshape((TM, TN)).astype(out.dtype))


def split_k(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    steps = 2
    splits = ct.cdiv(ct.cdiv(a.shape[1], K), steps)
    part = torch.empty(splits, *out.shape, dtype=torch.float32, device=a.device)
    grid, stream = (ct.cdiv(out.shape[0], M), ct.cdiv(out.shape[1], N)), torch.cuda.current_stream()
    ct.launch(stream, (*grid, splits), split_kernel, (a, b, part, steps, M, N, K))
    ct.launch(stream, grid, add_parts_kernel, (part, out, M, N))
    return out


@ct.kernel
def split_atomic_kernel(a, b, out, STEPS: Size, TM: Size, TN: Size, TK: Size):
    row, column, split = ct.bid(0), ct.bid(1), ct.bid(2)
    total = ct.zeros((TM, TN), ct.float32)
    last = min((split + 1) * STEPS, ct.num_tiles(a, axis=1, shape=(TM, TK)))
    for step in range(split * STEPS, last):
        left = ct.load(a, index=(row, step), shape=(TM, TK), padding_mode=ZERO)
        right = ct.load(b, index=(step, column), shape=(TK, TN), padding_mode=ZERO)
        total = ct.mma(left, right, total)
    rows = row * TM + ct.arange(TM, dtype=ct.int32)[:, None]
    columns = column * TN + ct.arange(TN, dtype=ct.int32)[None, :]
    ct.atomic_add(out, (rows, columns), total)


def split_k_atomic(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float32, device=a.device)
    steps = 2
    grid = (ct.cdiv(out.shape[0], M), ct.cdiv(out.shape[1], N), ct.cdiv(ct.cdiv(a.shape[1], K), steps))
    ct.launch(torch.cuda.current_stream(), grid, split_atomic_kernel, (a, b, out, steps, M, N, K))
    return out


@ct.kernel
def split_last_kernel(a, b, part, arrived, out, STEPS: Size, TM: Size, TN: Size, TK: Size):
    """The block that arrives last at an output tile adds up the parts of all."""
    row, column, split = ct.bid(0), ct.bid(1), ct.bid(2)
    splits = ct.num_blocks(2)
    total = ct.zeros((TM, TN), ct.float32)
    last = min((split + 1) * STEPS, ct.num_tiles(a, axis=1, shape=(TM, TK)))
    for step in range(split * STEPS, last):
        left = ct.load(a, index=(row, step), shape=(TM, TK), padding_mode=ZERO)
        right = ct.load(b, index=(step, column), shape=(TK, TN), padding_mode=ZERO)
        total = ct.mma(left, right, total)
    ct.store(part, index=(split, row, column), tile=total[None])
    before = ct.atomic_add(arrived, (row, column), 1, memory_order=ct.MemoryOrder.ACQ_REL)
    if before == splits - 1:
        total = ct.zeros((TM, TN), ct.float32)
        for other in range(splits):
            piece = ct.load(part, index=(other, row, column), shape=(1, TM, TN), padding_mode=ZERO)
            total += piece.reshape((TM, TN))
        ct.store(out, index=(row, column), tile=total.astype(out.dtype))


def split_k_last_block(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    steps = 2
    grid = (ct.cdiv(out.shape[0], M), ct.cdiv(out.shape[1], N), ct.cdiv(ct.cdiv(a.shape[1], K), steps))
    part = torch.empty(grid[2], *out.shape, dtype=torch.float32, device=a.device)
    arrived = torch.zeros(grid[:2], dtype=torch.int32, device=a.device)
    ct.launch(torch.cuda.current_stream(), grid, split_last_kernel, (a, b, part, arrived, out, steps, M, N, K))
    return out


@ct.kernel
def stream_kernel(a, b, out, SHARE: Size, TM: Size, TN: Size, TK: Size):
    """Each block takes SHARE successive steps of the whole product's, wherever tiles begin and end."""
    per_tile = ct.num_tiles(a, axis=1, shape=(TM, TK))
    columns = ct.num_tiles(out, axis=1, shape=(TM, TN))
    end = min((ct.bid(0) + 1) * SHARE, per_tile * columns * ct.num_tiles(out, axis=0, shape=(TM, TN)))
    at = ct.bid(0) * SHARE
    while at < end:
        tile = at // per_tile
        row, column = tile // columns, tile % columns
        stop = min(end, (tile + 1) * per_tile)
        total = ct.zeros((TM, TN), ct.float32)
        for place in range(at, stop):
            step = place - tile * per_tile
            left = ct.load(a, index=(row, step), shape=(TM, TK), padding_mode=ZERO)
            right = ct.load(b, index=(step, column), shape=(TK, TN), padding_mode=ZERO)
            total = ct.mma(left, right, total)
        view = out.tiled_view((TM, TN))
        view.atomic_store_add((row, column), total)
        at = stop


def stream_k(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float32, device=a.device)
    steps = ct.cdiv(out.shape[0], M) * ct.cdiv(out.shape[1], N) * ct.cdiv(a.shape[1], K)
    share = ct.cdiv(steps, 4)
    blocks = ct.cdiv(steps, share)
    ct.launch(torch.cuda.current_stream(), (blocks,), stream_kernel, (a, b, out, share, M, N, K))
    return out


@ct.kernel
def grouped_kernel(x, weights, starts, out, TM: Size, TN: Size, TK: Size):
    """Rows starts[g] to starts[g + 1] of x times weights[g], for every group g, by a fixed number of blocks."""
    columns = ct.cdiv(out.shape[1], TN)
    tile = ct.bid(0)
    before = 0
    for group in range(weights.shape[0]):
        first = ct.load(starts, index=(group,), shape=()).item()
        last = ct.load(starts, index=(group + 1,), shape=()).item()
        tiles = ct.cdiv(last - first, TM) * columns
        while tile < before + tiles:
            row, column = (tile - before) // columns, (tile - before) % columns
            mine, theirs = x.slice(axis=0, start=first, stop=last), out.slice(axis=0, start=first, stop=last)
            total = ct.zeros((TM, TN), ct.float32)
            for step in range(ct.num_tiles(x, axis=1, shape=(TM, TK))):
                left = ct.load(mine, index=(row, step), shape=(TM, TK), padding_mode=ZERO)
                right = ct.load(weights, index=(group, step, column), shape=(1, TK, TN), padding_mode=ZERO)
                total = ct.mma(left, right.reshape((TK, TN)), total)
            ct.store(theirs, index=(row, column), tile=total.astype(out.dtype))
            tile += ct.num_blocks(0)
        before += tiles


def grouped_gemm(x: torch.Tensor, weights: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape[0], weights.shape[2], dtype=x.dtype, device=x.device)
    ct.launch(torch.cuda.current_stream(), (3,), grouped_kernel, (x, weights, starts, out, M, N, K))
    return out


def grouped_inputs(case: Case, generator: torch.Generator) -> dict[str, Any]:
    sizes = case["sizes"]
    starts = torch.tensor([0, *sizes], device=generator.device).cumsum(0).to(torch.int32)
    weights = normal(case, generator, len(sizes), case["K"], case["N"])
    return {"x": normal(case, generator, sum(sizes), case["K"]), "weights": weights, "starts": starts}


def grouped_reference(x: torch.Tensor, weights: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    cuts = starts.tolist()
    return torch.cat([x[low:high] @ w for low, high, w in zip(cuts, cuts[1:], weights, strict=False)])


LONG = {"M": 20, "N": 40, "K": 90, "dtype": "float16"}
LOOSE = {"tolerance": (3e-2, 3e-2)}

EXAMPLES = (
    Example("split_k", split_k, factors, product, (LONG,), covers="split-K in two stages", **LOOSE),
    Example("split_k_atomic", split_k_atomic, factors, product, (LONG,), covers="split-K with atomics", **LOOSE),
    Example(
        "split_k_last_block",
        split_k_last_block,
        factors,
        product,
        (LONG,),
        covers="the last block reduces, by an atomic counter",
        **LOOSE,
    ),
    Example("stream_k", stream_k, factors, product, (LONG,), covers="stream-K, atomic add through a view", **LOOSE),
    Example(
        "grouped_gemm",
        grouped_gemm,
        grouped_inputs,
        grouped_reference,
        ({"sizes": (5, 17, 0, 32), "K": 40, "N": 48, "dtype": "float16"},),
        covers="T7, grouped GEMM",
        **LOOSE,
    ),
)
