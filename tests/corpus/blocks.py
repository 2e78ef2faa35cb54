"""Kernels whose loops and branches depend on data, or whose blocks meet in memory, in no order."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Case, Example, integers, normal

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def collatz_kernel(x, out):
    """Steps until 1."""
    i = ct.bid(0)
    n = ct.load(x, index=(i,), shape=())
    steps = 0
    while n != 1:
        n = ct.where(n % 2 == 0, n // 2, 3 * n + 1)
        steps += 1
    ct.store(out, index=(i,), tile=steps)


def collatz(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), collatz_kernel, (x, out))
    return out


def collatz_reference(x: torch.Tensor) -> torch.Tensor:
    counts = []
    for number in x.tolist():
        steps = 0
        while number != 1:
            number, steps = (number // 2 if number % 2 == 0 else 3 * number + 1), steps + 1
        counts.append(steps)
    return torch.tensor(counts)


@ct.kernel
def blocks_sum_kernel(x, mask, out, T: Size):
    """The sum of a row's tiles that a mask names, up to the first that it ends at."""
    row = ct.bid(0)
    total = ct.zeros((1, T), ct.float32)
    for step in range(ct.num_tiles(x, axis=1, shape=(1, T))):
        flag = ct.load(mask, index=(row, step), shape=()).item()
        if flag == 0:
            continue
        if flag == 2:
            break
        total += ct.load(x, index=(row, step), shape=(1, T), padding_mode=ZERO)
    ct.store(out, index=(row,), tile=ct.sum(total, axis=1))


def masked_tiles(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), blocks_sum_kernel, (x, mask, out, 16))
    return out


def masked_tiles_inputs(case: Case, generator: torch.Generator) -> dict[str, Any]:
    mask = torch.tensor([[1, 0, 1, 1], [0, 1, 2, 1], [2, 1, 1, 1], [0, 0, 0, 0]], dtype=torch.int32)
    return {"x": normal(case, generator, 4, 57), "mask": mask.to(generator.device)}


def masked_tiles_reference(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    kept = (mask == 1) & ((mask == 2).cumsum(1) == 0)
    return (x * kept.repeat_interleave(16, 1)[:, : x.shape[1]]).sum(1)


@ct.kernel
def whole_tiles_kernel(x, out, T: Size):
    """Blocks that have nothing to do return at once."""
    i = ct.bid(0)
    if i >= ct.num_tiles(x, axis=0, shape=(T,)):
        return
    a = ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO)
    ct.assert_(a == a, "no element is NaN")
    if i == 0:
        ct.printf("the first element is %f\n", ct.max(ct.extract(a, (0,), shape=(1,))))
    ct.store(out, index=(i,), tile=-a)


def negated(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (8,), whole_tiles_kernel, (x, out, 16))
    return out


@ct.kernel
def dependent_kernel(x, out, factor, T: Size):
    """May be launched before the kernel ahead of it has ended; waits for what that wrote."""
    i = ct.bid(0)
    ct.grid_dependency_control_wait()
    a = ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO)
    ct.store(out, index=(i,), tile=a * factor)
    ct.grid_dependency_control_launch_dependents()


def dependent_launches(x: torch.Tensor) -> torch.Tensor:
    middle, out = torch.empty_like(x), torch.empty_like(x)
    grid, stream = (ct.cdiv(x.shape[0], 16),), torch.cuda.current_stream()
    ct.launch(stream, grid, dependent_kernel, (x, middle, 2.0, 16))
    ct.launch(stream, grid, dependent_kernel, (middle, out, 3.0, 16))
    return out


def _vector(size: int) -> Any:
    return lambda case, generator: {"x": normal(case, generator, size)}


EXAMPLES: tuple[Example, ...] = (
    Example(
        "collatz",
        collatz,
        lambda case, generator: {"x": integers(generator, 1, 40, 6, dtype=torch.int32)},
        collatz_reference,
        ({},),
        covers="a while loop that depends on data",
    ),
    Example(
        "masked_tiles",
        masked_tiles,
        masked_tiles_inputs,
        masked_tiles_reference,
        ({},),
        covers="break and continue in branches that depend on data",
    ),
    Example("negated", negated, _vector(70), torch.neg, ({},), covers="early return, printf, assert_"),
    Example(
        "dependent_launches",
        dependent_launches,
        _vector(50),
        lambda x: x * 6,
        ({},),
        covers="programmatic dependent launch",
    ),
)


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


EXAMPLES += (
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
