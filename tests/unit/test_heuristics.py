"""Tiles that nvidia-matmul-heuristics suggests for a product, and what becomes of them where it cannot."""

from __future__ import annotations

import sys

import pytest

from tilewright.autotune import heuristics
from tilewright.autotune.heuristics import suggested
from tilewright.autotune.space import Kind, proposed
from tilewright.evaluation.results import Shaped
from tilewright.knobs import Knobs

PRODUCT = [Shaped(dtype="bfloat16", shape=[8192, 4096]), Shaped(dtype="bfloat16", shape=[4096, 2048])]
KERNEL = b"""
import cuda.tile as ct

TILE_M, TILE_N, TILE_K = 64, 64, 32


@ct.kernel
def matmul_kernel(a, b, out, M: ct.Constant[int], N: ct.Constant[int], K: ct.Constant[int]):
    pass


def matmul(a, b):
    return None
"""


def test_the_first_two_matrices_that_share_an_extent_are_the_product() -> None:
    def product(dtype: str, *shapes: list[int]) -> tuple[int, int, int, str] | None:
        return heuristics._product([Shaped(dtype=dtype, shape=shape) for shape in shapes])

    assert heuristics._product(PRODUCT) == (8192, 2048, 4096, "bfloat16")
    assert product("float16", [2048, 4096], [8192, 4096]) == (2048, 8192, 4096, "float16")
    assert product("float16", [8192, 64], [8, 100]) is None
    assert heuristics._product([PRODUCT[0], Shaped(dtype="float16", shape=[4096, 64])]) is None
    assert product("bfloat16", [8192, 4096], [4096]) is None


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_large_products_get_large_tiles_that_cutile_can_have(arch: str) -> None:
    pytest.importorskip(heuristics.PACKAGE)
    tiles = suggested(PRODUCT, arch)
    assert 0 < len(tiles) <= heuristics.TAKEN
    assert all(size & (size - 1) == 0 and 16 <= size <= 256 for tile in tiles for size in tile)
    assert max(m * n for m, n, _ in tiles) >= 128 * 128


@pytest.mark.parametrize(("dtype", "arch"), [("bfloat16", "sm_120"), ("float64", "sm_90")])
def test_what_the_library_does_not_know_it_is_not_asked(dtype: str, arch: str) -> None:
    assert suggested([one.model_copy(update={"dtype": dtype}) for one in PRODUCT], arch) == []


def test_a_library_that_fails_costs_its_suggestions_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heuristics.importlib.util, "find_spec", lambda _: True)
    for failing in ("/bin/false", "/bin/echo", "/nowhere"):
        monkeypatch.setattr(sys, "executable", failing)
        assert suggested(PRODUCT, "sm_90") == []


def test_suggested_tiles_come_first_and_the_space_says_so() -> None:
    knobs = Knobs({"kernel.py": KERNEL}, "kernel.py", "matmul")
    space = proposed(knobs, Kind.MATMUL, "sm_90", [(256, 256, 64)])
    assert space.configs[1] == {"TILE_M": 256, "TILE_N": 256, "TILE_K": 64, "num_worker_warps": 8}
    assert "nvidia-matmul-heuristics" in space.why
    attention = proposed(knobs, Kind.ATTENTION, "sm_90", [(256, 256, 64)])
    assert {"TILE_M": 256, "TILE_N": 256} not in [
        {k: c.get(k) for k in ("TILE_M", "TILE_N")} for c in attention.configs
    ]
    assert "heuristics" not in attention.why
