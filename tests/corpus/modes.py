"""What loads, stores and products can be told: hints and memory orders."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Example, normal

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
TILE = 16


@ct.kernel
def hints_kernel(a, b, out, T: Size):
    """A transposed sum of products of whole tiles, with everything that a load and a store can be told."""
    i, j = ct.bid(0), ct.bid(1)
    total = ct.zeros((T, T), ct.float32)
    for step in range(ct.num_tiles(a, axis=0, shape=(T, T), order="F")):
        left = ct.load(a, index=(step, i), shape=(T, T), order="F", check_bounds=False, latency=2)
        right = ct.load(b, index=(step, j), shape=(T, T), allow_tma=False, check_bounds=False)
        total = ct.mma(left.transpose(), right, total, use_fast_acc=True)
    view = out.tiled_view((T, T))
    view.store((i, j), total, latency=1, allow_tma=False, check_bounds=False)


def hinted_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Sizes are multiples of 16."""
    out = torch.empty(a.shape[0], b.shape[1], dtype=torch.float32, device=a.device)
    grid = (out.shape[0] // TILE, out.shape[1] // TILE)
    ct.launch(torch.cuda.current_stream(), grid, hints_kernel, (a, b, out, TILE))
    return out


@ct.kernel
def relay_kernel(x, passed, T: Size):
    """Each tile is handed on by a store that releases and taken by a load that acquires, in one block."""
    i = ct.bid(0)
    device = ct.MemoryScope.DEVICE
    a = ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO)
    ct.store(passed, index=(i,), tile=a + 1.0, memory_order=ct.MemoryOrder.RELEASE, memory_scope=device)
    taken = ct.load(
        passed,
        index=(i,),
        shape=(T,),
        padding_mode=ZERO,
        memory_order=ct.MemoryOrder.ACQUIRE,
        memory_scope=device,
    )
    ct.store(passed, index=(i,), tile=taken * 2.0, memory_order=ct.MemoryOrder.RELAXED, memory_scope=device)


def relay(x: torch.Tensor) -> torch.Tensor:
    passed = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), relay_kernel, (x, passed, TILE))
    return passed


def _drawn(shape: tuple[int, ...], *names: str) -> Any:
    return lambda case, generator: {name: normal(case, generator, *shape) for name in names}


EXAMPLES = (
    Example(
        "hinted_product",
        hinted_product,
        lambda case, generator: {"a": normal(case, generator, 32, 48), "b": normal(case, generator, 48, 32)},
        lambda a, b: a @ b,
        ({"dtype": "float8_e4m3fn"},),
        (1e-3, 1e-3),
        covers="hints, unchecked bounds, fast accumulation",
    ),
    Example("relay", relay, _drawn((40,), "x"), lambda x: (x + 1) * 2, ({},), covers="memory orders of load and store"),
)
