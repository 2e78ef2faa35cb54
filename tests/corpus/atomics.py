"""Kernels whose blocks meet in memory, by atomics, and whose outcome depends on no order."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Case, Example, integers

Size = ct.Constant[int]
EMPTY = -1


@ct.kernel
def histogram_kernel(x, counts, T: Size):
    """Elements out of the array get a bin out of the array."""
    places = ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    ct.atomic_add(counts, ct.gather(x, places, padding_value=-1), 1, memory_order=ct.MemoryOrder.RELAXED)


def histogram(x: torch.Tensor, bins: int) -> torch.Tensor:
    counts = torch.zeros(bins, dtype=torch.int32, device=x.device)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], 32),), histogram_kernel, (x, counts, 32))
    return counts


@ct.kernel
def extremes_kernel(x, keys, lowest, highest, T: Size):
    """The lowest and highest value of each key."""
    places = ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    key = ct.gather(keys, places, padding_value=-1)
    value = ct.gather(x, places)
    ct.atomic_min(lowest, key, value)
    ct.atomic_max(highest, key, value)


def extremes(x: torch.Tensor, keys: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    lowest = torch.full((count,), 2**31 - 1, dtype=torch.int32, device=x.device)
    highest = torch.full((count,), -(2**31), dtype=torch.int32, device=x.device)
    arguments = (x, keys, lowest, highest, 16)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], 16),), extremes_kernel, arguments)
    return lowest, highest


def extremes_reference(x: torch.Tensor, keys: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    groups = [x[keys == key] for key in range(count)]
    return torch.stack([group.amin() for group in groups]), torch.stack([group.amax() for group in groups])


@ct.kernel
def distinct_kernel(x, seen, count, T: Size):
    """Who is the first to set a flag counts it."""
    places = ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    inside = places < x.shape[0]
    before = ct.atomic_xchg(seen, ct.gather(x, places, padding_value=-1), 1)
    first = (inside & (before == 0)).astype(ct.int32)
    ct.atomic_add(count, 0, ct.sum(first))


def distinct(x: torch.Tensor, limit: int) -> tuple[torch.Tensor, torch.Tensor]:
    seen = torch.zeros(limit, dtype=torch.int32, device=x.device)
    count = torch.zeros(1, dtype=torch.int32, device=x.device)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], 16),), distinct_kernel, (x, seen, count, 16))
    return seen, count


def distinct_reference(x: torch.Tensor, limit: int) -> tuple[torch.Tensor, torch.Tensor]:
    seen = torch.bincount(x, minlength=limit).clamp(max=1)
    return seen, seen.sum()[None]


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
def bits_kernel(x, present, odd, cleared, T: Size):
    """A bit for each value: whether it occurs, whether an odd number of times, and one cleared if it occurs."""
    places = ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    a = ct.gather(x, places, padding_value=-1)
    word, bit = ct.where(a < 0, -1, a // 16), 1 << (ct.maximum(a, 0) % 16)
    ct.atomic_or(present, word, bit)
    ct.atomic_xor(odd, word, bit)
    ct.atomic_and(cleared, word, ~bit)


def bits(x: torch.Tensor, words: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    present = torch.zeros(words, dtype=torch.int32, device=x.device)
    odd = torch.zeros_like(present)
    cleared = torch.full_like(present, 0xFFFF)
    arguments = (x, present, odd, cleared, 16)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], 16),), bits_kernel, arguments)
    return present, odd, cleared


def bits_reference(x: torch.Tensor, words: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    counts = torch.bincount(x, minlength=16 * words).reshape(words, 16)
    weights = 2 ** torch.arange(16, device=x.device)
    present, odd = ((counts > 0) * weights).sum(1), (counts % 2 * weights).sum(1)
    return present, odd, 0xFFFF - present


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
        "histogram",
        histogram,
        _keys(150, 10, bins=10),
        lambda x, bins: torch.bincount(x, minlength=bins),
        ({},),
        covers="histogram with atomics",
    ),
    Example(
        "extremes",
        extremes,
        lambda case, generator: {
            "x": integers(generator, -(2**31), 2**31, 75, dtype=torch.int32),
            "keys": torch.arange(75, dtype=torch.int32) % 7,
            "count": 7,
        },
        extremes_reference,
        ({},),
        covers="atomic min and max",
    ),
    Example("distinct", distinct, _keys(70, 40, limit=40), distinct_reference, ({},), covers="atomic exchange"),
    Example(
        "hash_set",
        hash_set,
        lambda case, generator: {"keys": integers(generator, 0, 50, 45, dtype=torch.int32)},
        hash_set_reference,
        ({},),
        covers="atomic compare and swap, a while loop that depends on data",
    ),
    Example("bits", bits, _keys(60, 64, words=4), bits_reference, ({},), covers="atomic and, or, xor"),
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
