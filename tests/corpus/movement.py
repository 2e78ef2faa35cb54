"""Kernels that move and rearrange data: transposes, padding, pieces, bits seen as another dtype."""

from __future__ import annotations

import math
from typing import Annotated, Any

import cuda.tile as ct
import torch

from tests.corpus.example import Case, Example, integers, normal

Size = ct.Constant[int]
Pad = ct.PaddingMode


@ct.kernel
def transpose_kernel(x, out, A: Size, B: Size):
    i, j = ct.bid(0), ct.bid(1)
    a = ct.load(x, index=(i, j), shape=(A, B), padding_mode=Pad.ZERO)
    ct.store(out, index=(j, i), tile=a.transpose())


def transpose(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape[1], x.shape[0], dtype=x.dtype, device=x.device)
    grid = (ct.cdiv(x.shape[0], 8), ct.cdiv(x.shape[1], 16))
    ct.launch(torch.cuda.current_stream(), grid, transpose_kernel, (x, out, 8, 16))
    return out


@ct.kernel
def permute_kernel(x, out, A: Size, B: Size, C: Size):
    """(B, S, H, D) to (B, H, S, D)."""
    batch, i, j = ct.bid(0), ct.bid(1), ct.bid(2)
    a = ct.load(x, index=(batch, i, j, 0), shape=(1, A, B, C), padding_mode=Pad.ZERO)
    ct.store(out, index=(batch, j, i, 0), tile=ct.permute(a, (0, 2, 1, 3)))


def permute(x: torch.Tensor) -> torch.Tensor:
    batch, length, heads, width = x.shape
    out = torch.empty(batch, heads, length, width, dtype=x.dtype, device=x.device)
    grid = (batch, ct.cdiv(length, 4), ct.cdiv(heads, 2))
    ct.launch(torch.cuda.current_stream(), grid, permute_kernel, (x, out, 4, 2, 16))
    return out


@ct.kernel
def padding_kernel(x, out, T: Size):
    """The last tile of x under each padding mode, padding and all."""
    last = ct.num_tiles(x, axis=0, shape=(T,)) - 1
    ct.store(out, index=(0, 0), tile=ct.load(x, index=(last,), shape=(T,), padding_mode=Pad.ZERO)[None])
    ct.store(out, index=(1, 0), tile=ct.load(x, index=(last,), shape=(T,), padding_mode=Pad.POS_INF)[None])
    ct.store(out, index=(2, 0), tile=ct.load(x, index=(last,), shape=(T,), padding_mode=Pad.NEG_INF)[None])
    nan = ct.load(x, index=(last,), shape=(T,), padding_mode=Pad.NAN)
    ct.store(out, index=(3, 0), tile=ct.where(ct.isnan(nan), 7.0, nan)[None])
    negative = ct.load(x, index=(last,), shape=(T,), padding_mode=Pad.NEG_ZERO)
    ct.store(out, index=(4, 0), tile=ct.where(negative == 0.0, 1.0 / negative, negative)[None])


def padding(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(5, 16, dtype=x.dtype, device=x.device)
    ct.launch(torch.cuda.current_stream(), (1,), padding_kernel, (x, out, 16))
    return out


def padding_reference(x: torch.Tensor) -> torch.Tensor:
    tail = x[x.shape[0] // 16 * 16 :]
    missing = 16 - tail.shape[0]
    values = (0.0, math.inf, -math.inf, 7.0, -math.inf)
    return torch.stack([torch.nn.functional.pad(tail, (0, missing), value=value) for value in values])


@ct.kernel
def pad_copy_kernel(x, out, before, value, A: Size, B: Size):
    """x within a frame `before` wide above and to the left, and as wide as is left elsewhere."""
    i, j = ct.bid(0), ct.bid(1)
    rows = i * A + ct.arange(A, dtype=ct.int32)[:, None] - before
    columns = j * B + ct.arange(B, dtype=ct.int32)[None, :] - before
    ct.store(out, index=(i, j), tile=ct.gather(x, (rows, columns), padding_value=value))


def pad_copy(x: torch.Tensor, before: int, after: int, value: float) -> torch.Tensor:
    more = before + after
    out = torch.empty(x.shape[0] + more, x.shape[1] + more, dtype=x.dtype, device=x.device)
    grid = (ct.cdiv(out.shape[0], 4), ct.cdiv(out.shape[1], 16))
    ct.launch(torch.cuda.current_stream(), grid, pad_copy_kernel, (x, out, before, value, 4, 16))
    return out


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
def triangle_kernel(x, out, A: Size, B: Size):
    """The lower triangle, its rows turned round."""
    i, j = ct.bid(0), ct.bid(1)
    rows = i * A + ct.arange(A, dtype=ct.int32)[:, None]
    columns = j * B + ct.arange(B, dtype=ct.int32)[None, :]
    source = x.shape[1] - 1 - columns
    ct.scatter(out, (rows, columns), ct.gather(x, (rows, source), mask=source <= rows))


def turned_triangle(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    grid = (ct.cdiv(x.shape[0], 8), ct.cdiv(x.shape[1], 8))
    ct.launch(torch.cuda.current_stream(), grid, triangle_kernel, (x, out, 8, 8))
    return out


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


@ct.kernel
def static_shape_kernel(x: Annotated[ct.Array, ct.ArrayAnnotation(static_shape_dims=(1,))], out):
    """The rows' length is known to the compiler, and so can be a tile's."""
    row = ct.bid(0)
    a = ct.load(x, index=(row, 0), shape=(1, x.shape[1]))
    ct.store(out, index=(row,), tile=ct.max(a, axis=1))


def static_shape(x: torch.Tensor) -> torch.Tensor:
    """Rows of a power of two."""
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), static_shape_kernel, (x, out))
    return out


def _shaped(*shape: int) -> Any:
    return lambda case, generator: {"x": normal(case, generator, *shape)}


def _whole(case: Case, generator: torch.Generator) -> dict[str, Any]:
    return {"x": integers(generator, -(2**31), 2**31, 40, dtype=torch.int32)}


EXAMPLES = (
    Example(
        "transpose",
        transpose,
        _shaped(19, 37),
        lambda x: x.T,
        ({}, {"dtype": "bfloat16"}),
        covers="transpose",
    ),
    Example("permute", permute, _shaped(2, 9, 3, 16), lambda x: x.permute(0, 2, 1, 3), ({},), covers="permute"),
    Example("padding", padding, _shaped(25), padding_reference, ({},), covers="every padding mode"),
    Example(
        "pad_copy",
        pad_copy,
        lambda case, generator: {"x": normal(case, generator, 7, 20), "before": 2, "after": 3, "value": 1.5},
        lambda x, before, after, value: torch.nn.functional.pad(x, (before, after, before, after), value=value),
        ({},),
        covers="padding with a value",
    ),
    Example("pieces", pieces, _shaped(4, 32), pieces_reference, ({},), covers="extract, insert, cat and astile"),
    Example(
        "turned_triangle",
        turned_triangle,
        _shaped(13, 13),
        lambda x: x.tril().flip(1),
        ({},),
        covers="a mask of the gather",
    ),
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
    Example("static_shape", static_shape, _shaped(3, 32), lambda x: x.amax(1), ({},), covers="static shapes"),
)
