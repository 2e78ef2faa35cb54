"""The allocator of a worker that captures, on pages that are made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.worker import allocator
from tilewright.worker.allocator import Arena

MIB = 1 << 20


@pytest.fixture
def arena(monkeypatch: pytest.MonkeyPatch) -> Arena:
    made = Arena()
    mapped: dict[int, int] = {}
    pages: Any = SimpleNamespace(map=lambda at, size: mapped.update({at: size}), unmap=mapped.pop, mapped=mapped)
    made._pages = pages
    monkeypatch.setattr(allocator, "ok", lambda *_: None)
    monkeypatch.setattr(allocator.cuda, "cuCtxSynchronize", lambda: None)
    return made


def test_beside_other_work_blocks_take_no_more_than_they_may(arena: Arena) -> None:
    arena.limit = 4 * MIB
    first = arena._malloc(3 * MIB)
    assert first
    assert arena._malloc(2 * MIB) == 0
    assert arena.exhausted == f"a block of {2 * MIB} bytes cannot be had: beside other work it may take {4 * MIB} bytes"
    arena._free(first)
    pages: Any = arena._pages
    assert [*pages.mapped] == [first]
    second = arena._malloc(3 * MIB)
    assert [*pages.mapped] == [second]


def test_without_a_limit_freed_blocks_keep_their_pages_for_a_while(arena: Arena) -> None:
    first = arena._malloc(3 * MIB)
    arena._free(first)
    second = arena._malloc(3 * MIB)
    pages: Any = arena._pages
    assert [*pages.mapped] == [first, second]
    assert not arena.exhausted
