"""Kernels that move data: pieces of a row, offsets of 64 bits, an array made from a pointer."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Example, normal

Size = ct.Constant[int]
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


EXAMPLES = (
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
