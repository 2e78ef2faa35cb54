"""Kernels that move or map tiles: elementwise, strided, overlapping, in pieces, with other arguments and hints."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Case, Example, normal

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def rope_kernel(x, cos, sin, T: Size, HALF: Size):
    head, step = ct.bid(0), ct.bid(1)
    c = ct.load(cos, index=(step, 0), shape=(T, HALF), padding_mode=ZERO).astype(ct.float32)[None]
    s = ct.load(sin, index=(step, 0), shape=(T, HALF), padding_mode=ZERO).astype(ct.float32)[None]
    first = ct.load(x, index=(head, step, 0), shape=(1, T, HALF), padding_mode=ZERO).astype(ct.float32)
    second = ct.load(x, index=(head, step, 1), shape=(1, T, HALF), padding_mode=ZERO).astype(ct.float32)
    ct.store(x, index=(head, step, 0), tile=(first * c - second * s).astype(x.dtype))
    ct.store(x, index=(head, step, 1), tile=(second * c + first * s).astype(x.dtype))


def rope_in_place(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    heads, length, width = x.shape
    grid = (heads, ct.cdiv(length, 16))
    ct.launch(torch.cuda.current_stream(), grid, rope_kernel, (x, cos, sin, 16, width // 2))
    return x


def rope_inputs(case: Case, generator: torch.Generator) -> dict[str, Any]:
    length, width = case["S"], case["D"]
    angles = torch.arange(length)[:, None] * 100.0 ** (-torch.arange(width // 2) / width)
    x = normal(case, generator, case["H"], length, width)
    cos, sin = (table.to(device=generator.device, dtype=x.dtype) for table in (angles.cos(), angles.sin()))
    return {"x": x, "cos": cos, "sin": sin}


def rope_reference(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


@ct.kernel
def strided_kernel(x, y, out, A: Size, B: Size):
    i, j = ct.bid(0), ct.bid(1)
    a = ct.load(x, index=(i, j), shape=(A, B), padding_mode=ZERO)
    b = ct.load(y, index=(i, j), shape=(A, B), padding_mode=ZERO)
    ct.store(out, index=(i, j), tile=a - b)


def strided_difference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x.T - y[:, ::2], written into every other column of a wider tensor."""
    left, right = x.T, y[:, ::2]
    out = torch.empty(left.shape[0], 2 * left.shape[1], dtype=x.dtype, device=x.device)[:, ::2]
    grid = (ct.cdiv(left.shape[0], 8), ct.cdiv(left.shape[1], 16))
    ct.launch(torch.cuda.current_stream(), grid, strided_kernel, (left, right, out, 8, 16))
    return out


EXAMPLES: tuple[Example, ...] = (
    Example(
        "rope_in_place",
        rope_in_place,
        rope_inputs,
        rope_reference,
        ({"H": 2, "S": 21, "D": 32}, {"H": 1, "S": 16, "D": 16, "dtype": "float16"}),
        covers="T2, rope",
    ),
    Example(
        "strided_difference",
        strided_difference,
        lambda case, generator: {
            "x": normal(case, generator, case["N"], case["M"]),
            "y": normal(case, generator, case["M"], 2 * case["N"]),
        },
        lambda x, y: x.T - y[:, ::2],
        ({"M": 19, "N": 37}, {"M": 8, "N": 16, "dtype": "float16"}),
        covers="strided inputs and outputs",
    ),
)


@ct.kernel
def moving_average_kernel(x, out, WINDOW: Size, T: Size):
    """Windows that overlap, as tiles of a view whose steps are shorter than they."""
    view = x.tiled_view((WINDOW,), padding_mode=ZERO, traversal_steps=(1,))
    first = ct.bid(0) * T
    for i in range(first, min(first + T, out.shape[0])):
        ct.store(out, index=(i,), tile=ct.sum(view.load((i,)), keepdims=True) / WINDOW)


def moving_average(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape[0] - 7, dtype=x.dtype, device=x.device)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(out.shape[0], 8),), moving_average_kernel, (x, out, 8, 8))
    return out


EXAMPLES += (
    Example(
        "moving_average",
        moving_average,
        lambda case, generator: {"x": normal(case, generator, 40)},
        lambda x: x.unfold(0, 8, 1).mean(1),
        ({},),
        covers="a view whose tiles overlap",
    ),
)


Pad = ct.PaddingMode


@ct.kernel
def pieces_kernel(x, out, T: Size):
    """Quarters of a row in another order: taken out, joined, put in."""
    row = ct.bid(0)
    a = ct.load(x, index=(row, 0), shape=(1, 4 * T))
    first, third = ct.extract(a, (0, 0), shape=(1, T)), ct.extract(a, (0, 2), shape=(1, T))
    swapped = ct.cat((third, first), 1)
    result = ct.insert(a, (0, 1), swapped * 2.0)
    marks = ct.astile(((-1.0, 2.0, -3.0, 4.0, -5.0, 6.0, -7.0, 8.0),), dtype=x.dtype)
    ct.store(out, index=(row, 0), tile=ct.insert(result, (0, row % 2), marks))


def pieces(x: torch.Tensor) -> torch.Tensor:
    """Rows of 32."""
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), pieces_kernel, (x, out, 8))
    return out


def pieces_reference(x: torch.Tensor) -> torch.Tensor:
    quarters = x.reshape(-1, 4, 8)
    out = torch.stack((quarters[:, 0], quarters[:, 1], quarters[:, 2] * 2, quarters[:, 0] * 2), dim=1)
    marks = torch.tensor([-1.0, 2.0, -3.0, 4.0, -5.0, 6.0, -7.0, 8.0], dtype=x.dtype, device=x.device)
    out[::2, 0] = out[1::2, 1] = marks
    return out.reshape(x.shape)


@ct.kernel
def wide_index_kernel(x: ct.IndexedWithInt64, out: ct.IndexedWithInt64, T: Size):
    """A copy by offsets of 64 bits; a tensor could have more elements than 32 bits count."""
    row, step = ct.bid(0), ct.bid(1)
    columns = ct.arange(T, dtype=ct.int64) + step * T
    inside = columns < x.shape[1]
    offsets = ct.astile(row, dtype=ct.int64) * x.strides[0] + columns * x.strides[1]
    a = x.get_raw_memory().load_offset(offsets, mask=inside, padding_value=0)
    target = ct.astile(row, dtype=ct.int64) * out.strides[0] + columns * out.strides[1]
    out.get_raw_memory().store_offset(target, a + 1, mask=inside)


def wide_index(x: torch.Tensor) -> torch.Tensor:
    """x[::2] + 1"""
    x = x[::2]
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    grid = (x.shape[0], ct.cdiv(x.shape[1], 16))
    ct.launch(torch.cuda.current_stream(), grid, wide_index_kernel, (x, out, 16))
    return out


@ct.kernel
def foreign_kernel(x, out, ROWS: Size, COLUMNS: Size):
    """A matrix made of a flat array's memory."""
    matrix = ct.Array.from_foreign(x.foreign_pointer, (ROWS, COLUMNS), (COLUMNS, 1))
    a = ct.load(matrix, index=(ct.bid(0), 0), shape=(2, 8), padding_mode=Pad.ZERO)
    ct.store(out, index=(ct.bid(0),), tile=ct.sum(a, axis=1))


def rows_of_flat(x: torch.Tensor) -> torch.Tensor:
    """Sums of every six."""
    out = torch.empty(x.shape[0] // 6, dtype=x.dtype, device=x.device)
    arguments = (x, out, out.shape[0], 6)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(out.shape[0], 2),), foreign_kernel, arguments)
    return out


def _shaped(*shape: int) -> Any:
    return lambda case, generator: {"x": normal(case, generator, *shape)}


EXAMPLES += (
    Example("pieces", pieces, _shaped(4, 32), pieces_reference, ({},), covers="extract, insert, cat and astile"),
    Example("wide_index", wide_index, _shaped(7, 40), lambda x: x[::2] + 1, ({},), covers="64-bit indices"),
    Example(
        "rows_of_flat",
        rows_of_flat,
        _shaped(30),
        lambda x: x.reshape(-1, 6).sum(1),
        ({},),
        covers="an array made from a pointer",
    ),
)


@ct.kernel
def tuple_kernel(inputs: tuple, weights: tuple, out, T: Size):
    """Any number of tensors, passed as one tuple, and as many weights."""
    i = ct.bid(0)
    total = ct.zeros((T,), ct.float32)
    for number in ct.static_iter(range(len(inputs))):
        total += weights[number] * ct.load(inputs[number], index=(i,), shape=(T,), padding_mode=ZERO)
    ct.store(out, index=(i,), tile=total)


def weighted_sum(inputs: tuple[torch.Tensor, ...], weights: tuple[float, ...]) -> torch.Tensor:
    out = torch.empty_like(inputs[0])
    arguments = (inputs, weights, out, 16)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(out.shape[0], 16),), tuple_kernel, arguments)
    return out


@ct.kernel
def list_kernel(inputs, out, T: Size):
    """Any number of tensors of one shape, passed as a list that is indexed as it runs."""
    i = ct.bid(0)
    total = ct.zeros((T,), ct.float32)
    for number in range(len(inputs)):
        total += ct.load(inputs[number], index=(i,), shape=(T,), padding_mode=ZERO)
    ct.store(out, index=(i,), tile=total)


def list_sum(inputs: list[torch.Tensor]) -> torch.Tensor:
    out = torch.empty_like(inputs[0])
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(out.shape[0], 16),), list_kernel, (inputs, out, 16))
    return out


EXAMPLES += (
    Example(
        "weighted_sum",
        weighted_sum,
        lambda case, generator: {
            "inputs": tuple(normal(case, generator, 40) for _ in range(3)),
            "weights": (0.5, -2.0, 3.0),
        },
        lambda inputs, weights: sum(w * x for w, x in zip(weights, inputs, strict=True)),
        ({},),
        covers="tuples as arguments",
    ),
    Example(
        "list_sum",
        list_sum,
        lambda case, generator: {"inputs": [normal(case, generator, 40) for _ in range(5)]},
        lambda inputs: sum(inputs[1:], inputs[0]),
        ({},),
        covers="lists as arguments",
    ),
)


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


EXAMPLES += (
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
