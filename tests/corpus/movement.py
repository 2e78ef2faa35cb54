"""Kernels that move and rearrange data: transposes, padding, pieces, bits seen as another dtype."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Case, Example, integers, normal

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
def float_bits_kernel(x, exponents, rounded, T: Size):
    """The exponent of each float32, and its value cut to bfloat16 by way of its bits."""
    i = ct.bid(0)
    bits = ct.bitcast(ct.load(x, index=(i,), shape=(T,), padding_mode=Pad.ZERO), ct.int32)
    ct.store(exponents, index=(i,), tile=((bits >> 23) & 0xFF) - 127)
    ct.store(rounded, index=(i,), tile=ct.bitcast(bits & -65536, ct.float32))


def float_bits(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    exponents, rounded = torch.empty(x.shape, dtype=torch.int32, device=x.device), torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], 16),), float_bits_kernel, (x, exponents, rounded, 16))
    return exponents, rounded


def float_bits_reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    exponents = torch.frexp(x).exponent - 1
    step = torch.exp2(exponents.double() - 7)
    return exponents, (x / step).trunc() * step


@ct.kernel
def reverse_bytes_kernel(x, out, T: Size):
    """Each int32 with its bytes in reverse order."""
    i = ct.bid(0)
    pieces = ct.pack_to_bytes(ct.load(x, index=(i,), shape=(T,), padding_mode=Pad.ZERO)).reshape((T, 2, 2))
    a, b = ct.extract(pieces, (0, 0, 0), shape=(T, 1, 2)), ct.extract(pieces, (0, 1, 0), shape=(T, 1, 2))
    halves = ct.cat((b, a), 1)
    a, b = ct.extract(halves, (0, 0, 0), shape=(T, 2, 1)), ct.extract(halves, (0, 0, 1), shape=(T, 2, 1))
    turned = ct.cat((b, a), 2).reshape((4 * T,))
    ct.store(out, index=(i,), tile=ct.unpack_from_bytes(turned, ct.int32))


def reverse_bytes(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], 16),), reverse_bytes_kernel, (x, out, 16))
    return out


def reverse_bytes_reference(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.uint8).reshape(-1, 4).flip(1).contiguous().view(torch.int32).reshape(x.shape)


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


def _whole(case: Case, generator: torch.Generator) -> dict[str, Any]:
    return {"x": integers(generator, -(2**31), 2**31, 40, dtype=torch.int32)}


EXAMPLES = (
    Example("pieces", pieces, _shaped(4, 32), pieces_reference, ({},), covers="extract, insert, cat and astile"),
    Example("float_bits", float_bits, _shaped(45), float_bits_reference, ({},), covers="bitcast"),
    Example(
        "reverse_bytes",
        reverse_bytes,
        _whole,
        reverse_bytes_reference,
        ({},),
        covers="pack_to_bytes and unpack_from_bytes",
    ),
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
