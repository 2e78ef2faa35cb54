"""Kernels whose blocks meet in memory, by atomics, and whose outcome depends on no order."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Case, Example, integers

Size = ct.Constant[int]
EMPTY = -1


@ct.kernel
def hash_set_kernel(keys, table, T: Size):
    """Keys put into a table of open addresses, each by a walk from its place to the first that is free or its own."""
    size = table.shape[0]
    first = ct.bid(0) * T
    for i in range(first, min(first + T, keys.shape[0])):
        key = ct.gather(keys, i)
        place = (key * 31) % size
        old = ct.atomic_cas(table, place, EMPTY, key)
        while (old != EMPTY) & (old != key):
            place = (place + 1) % size
            old = ct.atomic_cas(table, place, EMPTY, key)


def hash_set(keys: torch.Tensor) -> torch.Tensor:
    """The distinct keys in order, after as many EMPTY as places were left."""
    table = torch.full((64,), EMPTY, dtype=torch.int32, device=keys.device)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(keys.shape[0], 8),), hash_set_kernel, (keys, table, 8))
    return table.sort().values


def hash_set_reference(keys: torch.Tensor) -> torch.Tensor:
    distinct_keys = keys.unique()
    return torch.cat((distinct_keys.new_full((64 - distinct_keys.shape[0],), EMPTY), distinct_keys))


@ct.kernel
def column_extremes_kernel(x, tops, lows, sums, R: Size, T: Size):
    """Tiles joined with what is in memory through views: no old values are asked for."""
    i, j = ct.bid(0), ct.bid(1)
    rows = i * R + ct.arange(R, dtype=ct.int32)[:, None]
    columns = j * T + ct.arange(T, dtype=ct.int32)[None, :]
    a = ct.gather(x, (rows, columns), padding_value=-(2**31))
    tops.tiled_view((T,)).atomic_store_max((j,), ct.max(a, axis=0))
    a = ct.gather(x, (rows, columns), padding_value=2**31 - 1)
    lows.tiled_view((T,)).atomic_store_min((j,), ct.min(a, axis=0))
    sums.tiled_view((T,)).atomic_store_add((j,), ct.sum(ct.gather(x, (rows, columns)), axis=0))


def column_extremes(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    tops = torch.full((x.shape[1],), -(2**31), dtype=torch.int32, device=x.device)
    lows = torch.full_like(tops, 2**31 - 1)
    sums = torch.zeros_like(tops)
    grid = (ct.cdiv(x.shape[0], 4), ct.cdiv(x.shape[1], 16))
    ct.launch(torch.cuda.current_stream(), grid, column_extremes_kernel, (x, tops, lows, sums, 4, 16))
    return tops, lows, sums


@ct.kernel
def locked_kernel(x, lock, total, T: Size):
    """A sum under a lock: only its holder reads and writes it."""
    places = ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    mine = ct.sum(ct.gather(x, places))
    while ct.atomic_cas(lock, 0, 0, 1, memory_order=ct.MemoryOrder.ACQUIRE) != 0:
        pass
    ct.scatter(total, 0, ct.gather(total, 0) + mine)
    ct.atomic_xchg(lock, 0, 0, memory_order=ct.MemoryOrder.RELEASE)


def locked_sum(x: torch.Tensor) -> torch.Tensor:
    lock, total = (torch.zeros(1, dtype=torch.int32, device=x.device) for _ in range(2))
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], 32),), locked_kernel, (x, lock, total, 32))
    return total


def _keys(count: int, limit: int, /, **more: Any) -> Any:
    def make(case: Case, generator: torch.Generator) -> dict[str, Any]:
        return {"x": integers(generator, 0, limit, count, dtype=torch.int32), **more}

    return make


EXAMPLES = (
    Example(
        "hash_set",
        hash_set,
        lambda case, generator: {"keys": integers(generator, 0, 50, 45, dtype=torch.int32)},
        hash_set_reference,
        ({},),
        covers="atomic compare and swap, a while loop that depends on data",
    ),
    Example(
        "column_extremes",
        column_extremes,
        lambda case, generator: {"x": integers(generator, -999, 1000, 10, 40, dtype=torch.int32)},
        lambda x: (x.amax(0), x.amin(0), x.sum(0)),
        ({},),
        covers="atomics through views",
    ),
    Example("locked_sum", locked_sum, _keys(200, 99), lambda x: x.sum()[None], ({},), covers="a lock"),
)
