"""More pairs of `playbook.py`: the entries that were found in kernels which agents had made faster."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import torch
from benchmarks.advice.playbook_kernels import PAGE as page
from benchmarks.advice.playbook_kernels import Side, Tensors
from benchmarks.advice.playbook_pairs import F32, W8, Made, Pair, mapped

K_MAJOR, TURN = page.int8_after.replace_hints(**W8), page.turn_words.replace_hints()
ROW_MAJOR = page.int8_before.replace_hints(**W8)
LOG_SUM = page.log_sum.replace_hints()


def turned(m: int, n: int, k: int, *tile: int) -> Any:
    """An int8 product whose b is (K, N), against one whose b is turned to (N, K) first."""

    def make(t: Tensors) -> Made:
        rows, columns, inner = (t.cut(one, few) for one, few in ((m, 128), (n, 256), (k, 256)))

        def bytes_of(*shape: int) -> torch.Tensor:
            made = torch.randint(-127, 128, shape, dtype=torch.int8, device=t.device)
            t.bytes += made.nbytes
            return made

        a, b, other = bytes_of(rows, inner), bytes_of(inner, columns), bytes_of(columns, inner)
        words = b.view(torch.int32).view(inner // 4, 4, columns // 4)
        into = other.view(torch.int32).view(columns // 4, 4, inner // 4)
        first, second = (torch.zeros(rows, columns, dtype=torch.int32, device=t.device) for _ in range(2))
        grid = ct.cdiv(rows, tile[0]), ct.cdiv(columns, tile[1])
        turns = TURN, (ct.cdiv(inner // 4, 32), ct.cdiv(columns // 4, 32)), (words, into, 32, 32)
        before = [(ROW_MAJOR, grid, (a, b, first, *tile))]
        after = [turns, (K_MAJOR, grid, (a, other, second, *tile))]
        return Side(before, first), Side(after, second), lambda: a.float() @ b.float()

    return make


def rows_of(height: int) -> Any:
    """A side of `log_sum` with so many rows a tile of 512 elements."""
    return LOG_SUM, lambda rows, _: ct.cdiv(rows, height), height, 512 // height


def logs(rows: int, columns: int) -> Any:
    """The log of each row's sum of exponentials: a row a block, against a row a warp."""
    return mapped(
        (rows, columns),
        rows_of(1),
        rows_of(4),
        lambda x: x.logsumexp(1, keepdim=True),
        dtype=F32,
        few=7,
        out=lambda rows, _: (rows, 1),
    )


def two_sums(rows: int, columns: int) -> Any:
    """x * sum(x) + y * sum(x * y) along rows that are one tile: two reductions, against one of two values."""

    def make(t: Tensors) -> Made:
        count = t.cut(rows, 3)
        x, y = t.normal(count, columns, dtype=F32), t.normal(count, columns, dtype=F32)

        def side(kernel: Any) -> Side:
            out = t.empty(count, columns, dtype=F32)
            return Side([(kernel.replace_hints(), (count,), (x, y, out, columns))], out)

        def reference() -> torch.Tensor:
            return x * x.sum(1, keepdim=True) + y * (x * y).sum(1, keepdim=True)

        return side(page.sums_before), side(page.sums_after), reference

    return make


# fmt: off
WHOLES: tuple[Pair, ...] = (
    Pair("eight-bit-operands", "int8 matmul 8192³ (128, 256, 128), 8 warps: b (K, N), to turned to (N, K) first", True,
         turned(8192, 8192, 8192, 128, 256, 128)),
    Pair("eight-bit-operands", "int8 matmul 128x8192x8192 (128, 128, 64), 8 warps: the same", False,
         turned(128, 8192, 8192, 128, 128, 64)),
    Pair("warp-per-row", "log of sums of exponentials, 16384x8192 float32: tiles (1, 512) to (4, 128)", True,
         logs(16384, 8192)),
    Pair("warp-per-row", "the same of 264x131072", False, logs(264, 131072)),
    Pair("one-reduction", "two sums along rows of 4096 float32, 32768 rows: two reductions to one", True,
         two_sums(32768, 4096)),
    Pair("one-reduction", "the same along rows of 128, a warp each, 524288 rows", False, two_sums(524288, 128)),
)
# fmt: on
