"""Edits that leave what a kernel computes as it is: what each kind does to a file, and what it leaves alone."""

from __future__ import annotations

import random

import pytest
from benchmarks.check.edits import TEXT, TREE, edited

SOURCE = '''"""A kernel."""

import torch


def scaled(x, factor):
    """x * factor + 1."""
    size = x.shape[0]
    out = torch.empty_like(x)
    out.copy_(x)
    total = out * factor
    return total + 1
'''


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("renamed variable", "total = out * factor\n    return total + 1", "total_here = out * factor\n    return tot"),
        ("reordered statements", "    size = x.shape[0]\n", "    out = torch.empty_like(x)\n    size = x.shape[0]\n"),
        ("unused import", "import torch", "import math\nimport torch"),
        ("swapped operands", "out * factor", "((factor) * (out))"),
        ("named result", "return total + 1", "answer = total + 1\n    return answer"),
    ],
)
def test_an_edit_of_a_kind(kind: str, before: str, after: str) -> None:
    assert before in SOURCE
    made = {text for seed in range(40) for _, text in edited(SOURCE, {kind: TREE[kind]}, 1, random.Random(seed))}
    assert any(after in text for text in made)


def test_statements_that_need_each_other_keep_their_order() -> None:
    kind = {"reordered statements": TREE["reordered statements"]}
    assert len({text for seed in range(20) for _, text in edited(SOURCE, kind, 1, random.Random(seed))}) == 1


def test_kinds_come_in_turn() -> None:
    kinds = [kind for kind, _ in edited(SOURCE, TEXT, 6, random.Random(1))]
    assert sorted(kinds) == sorted([*TEXT] * 2)
