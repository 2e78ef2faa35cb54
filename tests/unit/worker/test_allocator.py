"""The allocator of a worker that captures, on pages that are made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tilewright.gpu.driver import DriverError
from tilewright.worker import allocator
from tilewright.worker.allocator import Arena

MIB = 1 << 20


@pytest.fixture
def arena(monkeypatch: pytest.MonkeyPatch) -> Arena:
    made = Arena()
    mapped: dict[int, int] = {}
    pages: Any = SimpleNamespace(
        map=lambda at, size: mapped.update({at: size}), unmap=mapped.pop, clear=mapped.clear, mapped=mapped
    )
    made._pages = pages
    monkeypatch.setattr(allocator, "ok", lambda *_: None)
    monkeypatch.setattr(allocator.cuda, "cuCtxSynchronize", lambda: None)
    return made


def test_freed_blocks_keep_their_pages_for_a_while(arena: Arena) -> None:
    first = arena._malloc(3 * MIB)
    arena._free(first)
    second = arena._malloc(3 * MIB)
    pages: Any = arena._pages
    assert [*pages.mapped] == [first, second]
    assert not arena.exhausted


def test_freed_blocks_give_their_pages_back_once_they_are_many(arena: Arena) -> None:
    blocks = [arena._malloc(3 << 30) for _ in range(2)]
    for block in blocks:
        arena._free(block)
    last = arena._malloc(MIB)
    pages: Any = arena._pages
    assert [*pages.mapped] == [last]
    assert last > max(blocks)  # no address is used again


def test_a_capture_holds_its_pages(arena: Arena) -> None:
    before = arena._malloc(MIB)
    arena._free(before)
    arena.hold_pages()
    within = arena._malloc(MIB)
    arena._free(within)
    arena.release(0)
    pages: Any = arena._pages
    assert [*pages.mapped] == [before, within]
    arena.let_pages_go()
    arena.release(0)
    assert [*pages.mapped] == [within]
    count = arena.freed_within
    arena.hold_pages()
    later = arena._malloc(MIB)
    arena._free(later)
    arena.let_pages_go()
    arena.forget_captured(count)
    arena.release(0)
    assert [*pages.mapped] == [within], "only the later one's graph is gone"


def test_where_memory_is_short_freed_blocks_make_room(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    first = arena._malloc(MIB)
    arena._free(first)
    pages: Any = arena._pages
    there_is_room = pages.map

    def short(at: int, size: int) -> None:
        if first in pages.mapped:
            raise DriverError("CUDA_ERROR_OUT_OF_MEMORY", "mapping memory")
        there_is_room(at, size)

    monkeypatch.setattr(pages, "map", short)
    second = arena._malloc(MIB)
    assert [*pages.mapped] == [second]
    assert not arena.exhausted


def test_what_torch_says_of_memory_is_the_arenas(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch has no answers for an allocator like this one: `reset_peak_memory_stats` would fail."""
    names = ["memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_stats"]
    for name in (*names, "reset_peak_memory_stats", "reset_max_memory_allocated", "empty_cache"):
        for module in (torch.cuda, torch.cuda.memory):
            monkeypatch.setattr(module, name, None)
    for name in ("_cuda_customAllocator", "_cuda_changeCurrentAllocator"):
        monkeypatch.setattr(torch._C, name, lambda *_: None, raising=False)
    arena.install()
    first, _ = arena._malloc(3 * MIB), arena._malloc(MIB)
    arena._free(first)
    assert (torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()) == (MIB, 4 * MIB)
    assert torch.cuda.memory.memory_stats()["allocated_bytes.all.peak"] == 4 * MIB
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated(0) == MIB
    pages: Any = arena._pages
    assert first in pages.mapped
    torch.cuda.empty_cache()
    assert first not in pages.mapped


def test_an_arena_begins_anew_once_nothing_is_alive(arena: Arena) -> None:
    arena.start_zone(2)
    first, second = arena._malloc(5), arena._malloc(7)
    arena._free(first)
    assert not arena.reset()
    arena.hold_pages()
    arena._free(second)
    assert not arena.reset()
    arena.let_pages_go()
    assert arena.reset()
    assert (arena.blocks, arena.alive) == ({}, {})
    arena.start_zone(2)
    assert arena._malloc(5) == first
