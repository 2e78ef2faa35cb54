"""What torch operations of host code move and compute, as a GPU's kernels would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tilewright.interpreter.hostops import counting, paused

N = 4096
ROW = 4 * N
"""Bytes of a float32 vector."""
PRODUCT = torch.rand(64, 32)


def vector() -> torch.Tensor:
    return torch.rand(N)


x, y, indices, table = vector(), vector(), torch.zeros(8, dtype=torch.int64), torch.rand(1000, 64)
queries = torch.rand(1, 2, 16, 32)

CASES: dict[str, tuple[Callable[[], Any], list[str], float]] = {
    "one read and one written": (lambda: x * 2, ["mul"], 2 * ROW),
    "a tensor that is named twice is read once": (lambda: x * x, ["mul"], 2 * ROW),
    "a repeated element is read once": (lambda: torch.ones(1).expand(N) * 1.0, ["ones", "mul"], 4 + 4 + ROW),
    "what is written over is not read": (lambda: torch.empty(N).copy_(x), ["copy_"], 2 * ROW),
    "what is filled is not read": (lambda: torch.empty(N).fill_(1.0), ["fill_"], ROW),
    "what is updated is read too": (lambda: torch.zeros(N).add_(x), ["zeros", "add_"], ROW + 3 * ROW),
    "an output argument is not read": (lambda: torch.add(x, y, out=torch.empty(N)), ["add"], 3 * ROW),
    "many tensors in one operation": (lambda: torch._foreach_mul_([vector(), vector()], 2.0),
                                      ["rand", "rand", "_foreach_mul_"], 2 * ROW + 4 * ROW),
    "views are free": (lambda: x.view(64, 64).t()[3:], [], 0),
    "rows that are not asked for are not read": (lambda: F.embedding(indices, table), ["embedding"], 64 + 2 * 2048),
    "one kernel on a GPU": (lambda: F.rms_norm(x, (N,), y, 1e-6), ["rms_norm"], 3 * ROW),
}  # fmt: skip


@pytest.mark.parametrize("what", list(CASES))
def test_operations_move_what_they_must(what: str) -> None:
    function, names, moved = CASES[what]
    with counting() as ops:
        function()
    assert [work.name for work in ops] == names
    assert sum(work.bytes for work in ops) == moved


def test_products_and_attention_have_their_flops() -> None:
    with counting() as ops:
        PRODUCT @ PRODUCT.t()
        F.scaled_dot_product_attention(queries, queries, queries)
    assert [work.flops for work in ops] == [2 * 64 * 64 * 32, 2 * 2 * 2 * 16 * 16 * 32]


def test_nothing_is_counted_while_paused() -> None:
    with counting() as ops, paused():
        F.rms_norm(x * 2, (N,))
    assert ops == []
