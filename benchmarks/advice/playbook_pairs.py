"""The pairs of `playbook.py`: a kernel before and after each entry, where it should help and where not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cuda.tile as ct
import torch
from benchmarks.advice import playbook_kernels as kernels
from benchmarks.advice.playbook_kernels import PAGE as page
from benchmarks.advice.playbook_kernels import Side, Tensors

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
LOG2E = math.log2(math.e)
SMS = 132  # of an H200
W8, OCC4 = {"num_worker_warps": 8}, {"occupancy": 4}
ATTENTION = kernels.attention.replace_hints(**W8)


Made = tuple[Side, Side, Callable[[], torch.Tensor]]


@dataclass(frozen=True)
class Pair:
    """One row: `make` gives both sides and the reference. `eager`: the side before is launched without a graph."""

    entry: str
    kernel: str
    helps: bool
    make: Callable[[Tensors], Made]
    eager: bool = False


def product(size: Any, before: Any, after: Any, dtype: torch.dtype = BF16, room: int = 0, turned: bool = False) -> Any:
    """a @ b. A side is a kernel and its constants, of which M and N come first. `room`: the side after finds and leaves
    so many elements behind each row. `turned`: b is given as (N, K)."""

    def make(t: Tensors) -> Made:
        m, n, k = (t.cut(one, 321 if one % 2 else 384) for one in size)
        a, b = t.normal(m, k, dtype=dtype), t.normal(*((n, k) if turned else (k, n)), dtype=dtype)
        a2, b2 = a, b
        if room:
            a2, b2 = t.normal(m, k, dtype=dtype, room=room), t.normal(*b.shape, dtype=dtype, room=room)
            a2.copy_(a)
            b2.copy_(b)

        def side(left: torch.Tensor, right: torch.Tensor, room: int, kernel: Any, *constants: Any) -> Side:
            out = t.empty(m, n, dtype=dtype, room=room)
            rows, columns = ct.cdiv(m, constants[0]), ct.cdiv(n, constants[1])
            name = kernel._pyfunc.__name__
            grid = {"banded": (rows * columns,), "thin_before": (columns,), "thin_after": (columns,)}
            return Side([(kernel, grid.get(name, (rows, columns)), (left, right, out, *constants))], out)

        first, second = side(a, b, 0, *before), side(a2, b2, room, *after)
        return first, second, lambda: a.float() @ (b.float().T if turned else b.float())

    return make


def mapped(
    shape: Any, before: Any, after: Any, reference: Any, dtype: Any = BF16, few: int = 3, out: Any = None
) -> Any:
    """One tensor in, one out. A side is a kernel, its grid from the shape, and constants; of the first axis, only `few`
    are left when small. `out` is the result's shape from the input's, in float32, if it is another than the input's."""

    def make(t: Tensors) -> Made:
        size = (t.cut(shape[0], few), *shape[1:])
        x = t.normal(*size, dtype=dtype)

        def side(kernel: Any, grid: Any, *constants: Any) -> Side:
            made = t.empty(*out(*size), dtype=torch.float32) if out else t.empty(*size, dtype=dtype)
            found = grid(*size)
            return Side([(kernel, found if isinstance(found, tuple) else (found,), (x, made, *constants))], made)

        return side(*before), side(*after), lambda: reference(x.float())

    return make


def padded(rows: int, columns: int, room: int, copied: bool) -> Any:
    """x * 2 over rows that lie one behind another, against rows with `room` behind, all of which are then worked on.
    `copied`: the input is not given so, but has to be brought into that form first."""

    def make(t: Tensors) -> Made:
        count, tiles = t.cut(rows, 3), ct.cdiv(columns + room, 1024)
        x, out = t.normal(count, columns), t.empty(count, columns)
        wide, wide_out = t.normal(count, columns + room), t.empty(count, columns + room)
        wide[:, :columns] = x
        plain = [(page.scale_after, (count, tiles), (x, out, 1024))]
        better = [(page.scale_after, (count, tiles), (wide, wide_out, 1024))]
        if copied:
            better.insert(0, (kernels.copy, (count, tiles), (x, wide[:, :columns], 1, 1024, 0, True)))
        return Side(plain, out), Side(better, wide_out[:, :columns]), lambda: x.float() * 2

    return make


def offset(length: int, start: int, before: Any, after: Any) -> Any:
    """A copy from an offset that is no constant. A side: whether it promises that the offset is a multiple of 16."""

    def make(t: Tensors) -> Made:
        size = t.cut(length, 16384)
        x = t.normal(size + start)

        def side(*constants: Any) -> Side:
            out = t.empty(size)
            return Side([(kernels.copy_from, (size // 4096,), (x, out, start, 4096, *constants))], out)

        return side(*before), side(*after), lambda: x[start:].float()

    return make


def attentive(heads: int, length: int, before: Any, after: Any, causal: bool = True) -> Any:
    """Attention over tiles of (128, 128). A side: SPLIT, LAST, BASE_TWO, FLUSH."""

    def make(t: Tensors) -> Made:
        size = (t.cut(heads, 2), t.cut(length, 384), 128)
        q, k, v = (t.normal(*size, dtype=F16) for _ in range(3))

        def side(*flags: bool) -> Side:
            out = t.empty(*size, dtype=F16)
            scale = 128**-0.5 * (LOG2E if flags[2] else 1.0)
            arguments = (q, k, v, out, scale, 128, 128, 128, causal, *flags)
            return Side([(ATTENTION, (size[0], size[1] // 128), arguments)], out)

        def reference() -> torch.Tensor:
            return torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=causal)

        return side(*before), side(*after), reference

    return make


def fused_after(m: int, n: int, k: int) -> Any:
    """Bias and gelu of a product in a kernel of their own, against in the product's."""
    product_alone, together = kernels.matmul.replace_hints(), page.matmul_bias_gelu.replace_hints()

    def make(t: Tensors) -> Made:
        rows, columns, inner = (t.cut(one, 384) for one in (m, n, k))
        a, b, bias = t.normal(rows, inner), t.normal(inner, columns), t.normal(columns)
        middle, out, other = t.empty(rows, columns), t.empty(rows, columns), t.empty(rows, columns)
        grid, tiles = (rows // 128, columns // 128), ct.cdiv(columns, 2048)
        before = [
            (product_alone, grid, (a, b, middle, 128, 128, 64, 0, True, True)),
            (kernels.bias_gelu, (rows, tiles), (middle, bias, out, 2048)),
        ]
        after = [(together, grid, (a, b, bias, other, 128, 128, 64))]

        def reference() -> torch.Tensor:
            return torch.nn.functional.gelu(a.float() @ b.float() + bias.float(), approximate="tanh")

        return Side(before, out), Side(after, other), reference

    return make


def fused_before(m: int, n: int, k: int) -> Any:
    """silu(a) made once for the product, against in the product, by every block that reads it."""
    product_alone = kernels.matmul.replace_hints()

    def make(t: Tensors) -> Made:
        rows, columns, inner = (t.cut(one, 384) for one in (m, n, k))
        a, b, middle = t.normal(rows, inner), t.normal(inner, columns), t.empty(rows, inner)
        out, other, grid = t.empty(rows, columns), t.empty(rows, columns), (rows // 128, columns // 128)
        before = [
            (kernels.silu, (ct.cdiv(a.numel(), 2048),), (a.view(-1), middle.view(-1), 2048, False)),
            (product_alone, grid, (middle, b, out, 128, 128, 64, 0, True, True)),
        ]
        after = [(kernels.silu_matmul, grid, (a, b, other, 128, 128, 64))]
        return Side(before, out), Side(after, other), lambda: torch.nn.functional.silu(a.float()) @ b.float()

    return make


def split(m: int, n: int, k: int, shares: int) -> Any:
    """One block for each output tile of (128, 128), against `shares` of them and a kernel that adds up."""
    alone = kernels.matmul.replace_hints()

    def make(t: Tensors) -> Made:
        rows, columns, inner = (t.cut(one, 384) for one in (m, n, k))
        a, b, out, other = (
            t.normal(rows, inner),
            t.normal(inner, columns),
            t.empty(rows, columns),
            t.empty(rows, columns),
        )
        part, grid = t.empty(shares, rows, columns, dtype=F32), (rows // 128, columns // 128)
        before = [(alone, grid, (a, b, out, 128, 128, 64, 0, True, True))]
        after = [
            (page.split_part, (*grid, shares), (a, b, part, 128, 128, 64, ct.cdiv(inner // 64, shares))),
            (page.split_sum, (rows // 32, columns // 64), (part, other, 32, 64)),
        ]
        return Side(before, out), Side(after, other), lambda: a.float() @ b.float()

    return make


def launched(length: int, count: int) -> Any:
    """`count` launches, each of which adds one: launched one by one, against in a CUDA graph."""

    def make(t: Tensors) -> Made:
        size = t.cut(length, 4096)
        x, held = t.normal(size, dtype=F32), [t.empty(size, dtype=F32) for _ in range(2)]
        steps = [x, *(held[number % 2] for number in range(count))]
        calls = [
            (page.shift_before, (ct.cdiv(size, 1024),), (one, two, 1024)) for one, two in itertools.pairwise(steps)
        ]
        return Side(calls, steps[-1]), Side(calls, steps[-1]), lambda: x + count

    return make


def per_row(rows: int, columns: int) -> tuple[int, ...]:
    return (rows,)


def hinted(kernel: Any, *rest: Any, **hints: int) -> tuple[Any, ...]:
    return (kernel.replace_hints(**hints), *rest)


def mm(*tile: int, latency: int = 0, tma: bool = True, check: bool = True, **hints: int) -> tuple[Any, ...]:
    """A side of a product by `matmul`; latency 0 leaves it to the compiler."""
    return hinted(kernels.matmul, *tile, latency, tma, check, **hints)


def by_tiles(height: int, width: int) -> Callable[[int, int], tuple[int, int]]:
    return lambda rows, columns: (ct.cdiv(rows, height), ct.cdiv(columns, width))


def by_length(tile: int) -> Callable[[int], int]:
    return lambda length: ct.cdiv(length, tile)


def row_sums(tile: tuple[int, int], latency: int = 0, tma: bool = True, check: bool = True) -> tuple[Any, ...]:
    return (kernels.row_sum, lambda rows, _: ct.cdiv(rows, tile[0]), *tile, latency, tma, check)


def rms(how: int, **hints: int) -> tuple[Any, ...]:
    return hinted(kernels.rms, per_row, 8192, how, **hints)


def softmax(how: int) -> tuple[Any, ...]:
    return hinted(kernels.softmax, per_row, 8192, how, **OCC4)


T64, T128, TWIDE, TTALL = (64, 64, 64), (128, 128, 64), (128, 256, 64), (256, 128, 64)
ROWS, FLAT, CUBE, HALF = (16384, 8192), (1 << 27,), (8192,) * 3, (4096,) * 3
OPEN = (False, False, True, True)

PAIRS: tuple[Pair, ...] = (
    Pair("none", "bf16 matmul 8192³, (128, 256, 64), 8 warps: the same twice", False,
         product(CUBE, mm(*TWIDE, **W8), mm(*TWIDE, **W8))),
    Pair("none", "RMSNorm 16384x8192 bf16, occupancy 4: the same twice", False,
         mapped(ROWS, rms(0, **OCC4), rms(0, **OCC4), kernels.rms_exact)),
    Pair("one-pass", "RMSNorm 16384x8192 bf16, occupancy 4: steps of 1024 to whole rows", True,
         mapped(ROWS, hinted(page.rms_before, per_row, 8192, 1024, **OCC4),
                hinted(page.rms_after, per_row, 8192, 8192, **OCC4), kernels.rms_exact)),
    Pair("one-pass", "RMSNorm 2048x65536 bf16, 8 warps: steps of 4096 to whole rows, which spill", False,
         mapped((2048, 65536), hinted(page.rms_before, per_row, 65536, 4096, **W8),
                hinted(page.rms_after, per_row, 65536, 65536, **W8), kernels.rms_exact)),
    Pair("fuse", "bf16 matmul 8192x8192x1024 (128, 128, 64): bias and gelu into its end", True,
         fused_after(8192, 8192, 1024)),
    Pair("fuse", "bf16 matmul 8192x8192x4096 (128, 128, 64): silu of an operand into its loop", False,
         fused_before(8192, 8192, 4096)),
    Pair("tiles-for-gathers", "bf16 matmul 4096³ (128, 128, 64), 8 warps: gathers to tiles", True,
         product(HALF, hinted(kernels.matmul_by_gather, *T128, **W8), mm(*T128, **W8))),
    Pair("tiles-for-gathers", "x * 2, 16384x8192 float32, 1024 elements a block: gather to tile", False,
         mapped(ROWS, (page.scale_before, by_tiles(1, 1024), 1024), (page.scale_after, by_tiles(1, 1024), 1024),
                lambda x: x * 2, F32)),
    Pair("zero-padding", "softmax 16384x6000 float32, occupancy 4: minus infinity to zeros and a mask", True,
         mapped((16384, 6000), hinted(page.softmax_before, per_row, 8192, **OCC4),
                hinted(page.softmax_after, per_row, 8192, **OCC4), kernels.softmax_exact, F32)),
    Pair("zero-padding", "softmax 16384x8192 float32, occupancy 4: whole tiles, unpadded, to zeros and a mask", False,
         mapped(ROWS, softmax(0), hinted(page.softmax_after, per_row, 8192, **OCC4), kernels.softmax_exact, F32)),
    Pair("align-16-bytes", "bf16 matmul 4001³ (128, 128, 64): rows of 4001 to storage of 4008", True,
         product((4001,) * 3, mm(*T128), mm(*T128), room=7)),
    Pair("align-16-bytes", "x * 2, 16384x8001 bf16: with a copy into storage of 8008 first", False,
         padded(16384, 8001, 7, copied=True)),
    Pair("wider-access", "x * 2, 16384x8001 bf16: rows rounded up to 8016", True,
         padded(16384, 8001, 15, copied=False)),
    Pair("wider-access", "copy of 2^27 bf16 from an offset: promised to be a multiple of 16", True,
         offset(1 << 27, 16, (False,), (True,))),
    Pair("wider-access", "x * 2, 16384x8000 bf16, wide already: rows rounded up to 8016", False,
         padded(16384, 8000, 16, copied=False)),
    Pair("tma-rules", "row sums 16384x8192 bf16 in tiles of 512 bytes: allow_tma=False", True,
         mapped(ROWS, row_sums((4, 64)), row_sums((4, 64), tma=False), lambda x: x.sum(1), few=4, out=per_row)),
    Pair("tma-rules", "bf16 matmul 8192³ (128, 128, 64): allow_tma=False", False,
         product(CUBE, mm(*T128), mm(*T128, tma=False))),
    Pair("transposed-load", "fp16 matmul 8192³ of b.T, (128, 256, 64), 8 warps: transpose() to order=", False,
         product(CUBE, hinted(page.nt_before, *TWIDE, **W8), hinted(page.nt_after, *TWIDE, **W8), F16, turned=True)),
    Pair("transposed-load", "transposing 16384x8192 float32 in tiles of (64, 64): transpose() to order=", False,
         mapped(ROWS, (kernels.transpose, lambda m, n: (n // 64, ct.cdiv(m, 64)), 64, False),
                (kernels.transpose, lambda m, n: (n // 64, ct.cdiv(m, 64)), 64, True), lambda x: x.T, F32, 3,
                lambda m, n: (n, m))),
    Pair("skip-bounds", "copy 16384x8192 bf16 in tiles of (64, 64)", True,
         mapped(ROWS, (kernels.copy, by_tiles(64, 64), 64, 64, 0, True),
                (kernels.copy, by_tiles(64, 64), 64, 64, 0, False), lambda x: x, few=64)),
    Pair("skip-bounds", "bf16 matmul 8192³ (128, 128, 64), by TMA", False,
         product(CUBE, mm(*T128), mm(*T128, check=False))),
    Pair("skip-bounds", "row sums 16384x8192 bf16 in tiles of (64, 64), by TMA", False,
         mapped(ROWS, row_sums((64, 64)), row_sums((64, 64), check=False), lambda x: x.sum(1), few=64, out=per_row)),
    Pair("raise-occupancy", "RMSNorm 16384x8192 bf16: none to 4", True,
         mapped(ROWS, rms(0), rms(0, **OCC4), kernels.rms_exact)),
    Pair("raise-occupancy", "RMSNorm 16384x8192 bf16: 4 to 16, which spills", False,
         mapped(ROWS, rms(0, **OCC4), rms(0, occupancy=16), kernels.rms_exact)),
    Pair("raise-occupancy", "copy 16384x8192 bf16 in tiles of (64, 64), few registers: none to 4", False,
         mapped(ROWS, (kernels.copy, by_tiles(64, 64), 64, 64, 0, True),
                hinted(kernels.copy, by_tiles(64, 64), 64, 64, 0, True, **OCC4), lambda x: x, few=64)),
    Pair("tile-shape", "bf16 matmul 8192³: (64, 64, 64) to (128, 128, 64)", True, product(CUBE, mm(*T64), mm(*T128))),
    Pair("tile-shape", "x * 2, 16384x8192 bf16: 128 elements a block to 4096", True,
         mapped(ROWS, (page.scale_after, by_tiles(1, 128), 128), (page.scale_after, by_tiles(1, 4096), 4096),
                lambda x: x * 2)),
    Pair("tile-shape", "bf16 matmul 1024x1024x8192: (64, 64, 64) to (128, 256, 64) with 8 warps, 32 blocks", False,
         product((1024, 1024, 8192), mm(*T64), mm(*TWIDE, **W8))),
    Pair("smaller-tiles", "bf16 matmul 4096³, 8 warps: (256, 256, 64), which spills, to (128, 256, 64)", True,
         product(HALF, mm(256, 256, 64, **W8), mm(*TWIDE, **W8))),
    Pair("smaller-tiles", "bf16 matmul 4096³, 8 warps: (128, 256, 64) to (128, 128, 64)", False,
         product(HALF, mm(*TWIDE, **W8), mm(*T128, **W8))),
    Pair("more-worker-warps", "bf16 matmul 4096³ (128, 256, 64): 4, which spills, to 8", True,
         product(HALF, mm(*TWIDE), mm(*TWIDE, **W8))),
    Pair("more-worker-warps", "RMSNorm 16384x8192 bf16, occupancy 4: 4 to 8", False,
         mapped(ROWS, rms(0, **OCC4), rms(0, **OCC4, **W8), kernels.rms_exact)),
    Pair("cta-pairs", "bf16 matmul 4096³ (128, 256, 64): 4 warps, which spill, to num_ctas=2, occupancy=2", True,
         product(HALF, mm(*TWIDE), mm(*TWIDE, num_ctas=2, occupancy=2))),
    Pair("cta-pairs", "bf16 matmul 8192³ (256, 128, 64): 8 warps to num_ctas=2, occupancy=2", True,
         product(CUBE, mm(*TTALL, **W8), mm(*TTALL, num_ctas=2, occupancy=2))),
    Pair("cta-pairs", "RMSNorm 16384x8192 bf16, occupancy 4: num_ctas=2", False,
         mapped(ROWS, rms(0, **OCC4), rms(0, **OCC4, num_ctas=2), kernels.rms_exact)),
    Pair("load-latency", "bf16 matmul 8192³ (128, 128, 64): latency 1 to 10", True,
         product(CUBE, mm(*T128, latency=1), mm(*T128, latency=10))),
    Pair("load-latency", "row sums 16384x8192 bf16 in tiles of (64, 64): none to latency 10", True,
         mapped(ROWS, row_sums((64, 64)), row_sums((64, 64), latency=10), lambda x: x.sum(1), few=64, out=per_row)),
    Pair("load-latency", "bf16 matmul 8192³ (128, 128, 64), occupancy 2: none to latency 10", False,
         product(CUBE, mm(*T128, occupancy=2), mm(*T128, latency=10, occupancy=2))),
    Pair("load-latency", "copy 16384x8192 bf16 in tiles of (64, 64): none to latency 10", False,
         mapped(ROWS, (kernels.copy, by_tiles(64, 64), 64, 64, 0, True),
                (kernels.copy, by_tiles(64, 64), 64, 64, 10, True), lambda x: x, few=64)),
    Pair("tensor-core-dtype", "float32 matmul 4096³ (64, 64, 32): tfloat32", True,
         product(HALF, hinted(page.product_before, 64, 64, 32), hinted(page.product_after, 64, 64, 32), F32)),
    Pair("tensor-core-dtype", "float32 matmul of 16 rows, 16x16384x8192 (16, 64, 32): tfloat32", False,
         product((16, 16384, 8192), (page.product_before, 16, 64, 32), (page.product_after, 16, 64, 32), F32)),
    Pair("tensor-core-shape", "bf16 matmul of 16 rows, 16x16384x8192 (16, 128, 64): transposed", True,
         product((16, 16384, 8192), hinted(page.thin_before, 16, 128, 64), hinted(page.thin_after, 16, 128, 64))),
    Pair("tensor-core-shape", "bf16 matmul of 128 rows, 128x16384x8192 (128, 128, 64): transposed", False,
         product((128, 16384, 8192), hinted(page.thin_before, *T128), hinted(page.thin_after, *T128))),
    Pair("fewer-divisions", "softmax 16384x8192 bf16, occupancy 4: times the reciprocal", True,
         mapped(ROWS, softmax(0), softmax(1), kernels.softmax_exact)),
    Pair("fewer-divisions", "softmax 16384x8192 bf16, occupancy 4: divided approximately", True,
         mapped(ROWS, softmax(0), softmax(2), kernels.softmax_exact)),
    Pair("fewer-divisions", "RMSNorm 16384x8192 bf16, occupancy 4: its one division a row", False,
         mapped(ROWS, rms(0, **OCC4), rms(1, **OCC4), kernels.rms_exact)),
    Pair("base-two", "attention fp16, 64 heads, 4096x128: exp to exp2", True,
         attentive(64, 4096, (False,) * 4, (False, False, True, False), causal=False)),
    Pair("base-two", "exp of rows once, 16384x8192 float32, occupancy 4: exp to exp2", False,
         mapped(ROWS, hinted(page.weights_before, per_row, 0.3, 8192, **OCC4),
                hinted(page.weights_after, per_row, 0.3 * LOG2E, 8192, **OCC4), kernels.weights_exact, F32)),
    Pair("flush-to-zero", "attention fp16, 64 heads, 4096x128: exp2 flushed", True,
         attentive(64, 4096, (False, False, True, False), (False, False, True, True), causal=False)),
    Pair("flush-to-zero", "silu of 2^27 bf16: exp and division approximate and flushed", True,
         mapped(FLAT, (kernels.silu, by_length(2048), 2048, False), (kernels.silu, by_length(2048), 2048, True),
                torch.nn.functional.silu, few=5000)),
    Pair("flush-to-zero", "RMSNorm 16384x8192 bf16, occupancy 4: its one rsqrt a row", False,
         mapped(ROWS, rms(0, **OCC4), rms(2, **OCC4), kernels.rms_exact)),
    Pair("reduce-last", "row sums 16384x8192 bf16, occupancy 4, steps of 256: reduced in each step to once", True,
         mapped(ROWS, hinted(page.reduced_before, per_row, 256, **OCC4),
                hinted(page.reduced_after, per_row, 256, **OCC4), lambda x: x.sum(1), out=per_row)),
    Pair("reduce-last", "row sums 16384x8192 bf16, occupancy 4, one step a row: reduced in it to behind it", False,
         mapped(ROWS, hinted(page.reduced_before, per_row, 8192, **OCC4),
                hinted(page.reduced_after, per_row, 8192, **OCC4), lambda x: x.sum(1), out=per_row)),
    Pair("split-masked-loop", "causal attention fp16, 64 heads, 4096x128", True,
         attentive(64, 4096, (False, False, True, True), (True, False, True, True))),
    Pair("split-masked-loop", "causal attention fp16, 2048 heads, 256x128, mostly masked steps", False,
         attentive(2048, 256, (False, False, True, True), (True, False, True, True))),
    Pair("split-masked-loop", "row sums of exp, 16384x8100 float32, occupancy 4, bound by memory", False,
         mapped((16384, 8100), hinted(page.rowsum_before, per_row, 8100, 1024, **OCC4),
                hinted(page.rowsum_after, per_row, 8100, 1024, **OCC4), lambda x: x.exp().sum(1), F32, out=per_row)),
    Pair("tile-order", "bf16 matmul 8192³ (128, 128, 64): bands of 8", True,
         product(CUBE, mm(*T128), hinted(page.banded, *T128, 8))),
    Pair("tile-order", "bf16 matmul 8192³ (128, 256, 64), 8 warps: bands of 8", True,
         product(CUBE, mm(*TWIDE, **W8), hinted(page.banded, *TWIDE, 8, **W8))),
    Pair("tile-order", "bf16 matmul 2048³ (128, 128, 64), operands fit in L2: bands of 8", False,
         product((2048,) * 3, mm(*T128), hinted(page.banded, *T128, 8))),
    Pair("persistent-blocks", "gelu of 2^27 float32, 1024 elements a tile: a block a tile to 12 an SM", True,
         mapped(FLAT, (page.gelu_before, by_length(1024), 1024), (page.gelu_after, lambda n: SMS * 12, 1024),
                lambda x: x * torch.sigmoid(1.702 * x), F32, few=5000)),
    Pair("persistent-blocks", "row sums of a triangle, 16384x16384 bf16, occupancy 4: a block a tile to 4 an SM", False,
         mapped((16384, 16384), hinted(kernels.triangle, lambda m, n: m // 16, 16, 128, False, **OCC4),
                hinted(kernels.triangle, lambda m, n: SMS * 4, 16, 128, True, **OCC4), kernels.triangle_exact, few=64,
                out=per_row)),
    Pair("split-k", "bf16 matmul 512x512x32768 (128, 128, 64): 16 blocks to 128 and a sum", True,
         split(512, 512, 32768, 8)),
    Pair("split-k", "bf16 matmul 4096³ (128, 128, 64): 1024 blocks to 2048 and a sum", False,
         split(4096, 4096, 4096, 2)),
    Pair("heavy-blocks-first", "causal attention fp16, 16 heads, 8192x128: last rows first", True,
         attentive(16, 8192, OPEN, (False, True, True, True))),
    Pair("heavy-blocks-first", "attention fp16, 16 heads, 4096x128, not causal: last rows first", False,
         attentive(16, 4096, OPEN, (False, True, True, True), causal=False)),
    Pair("fewer-launches", "8 launches of 32768 float32: one by one to a CUDA graph", True, launched(32768, 8), True),
    Pair("fewer-launches", "8 launches of 2^26 float32: one by one to a CUDA graph", False, launched(1 << 26, 8), True),
)  # fmt: skip
