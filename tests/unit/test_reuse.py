"""Which products are told to take a larger output tile: those that outrun the L2 cache, where one would help."""

from __future__ import annotations

from functools import cache
from typing import Any

import cuda.tile as ct
import pytest
import torch

from tests.unit import kernels
from tilewright.compiler.compilation import Compilation
from tilewright.compiler.cutile import compile_kernel
from tilewright.compiler.findings import findings
from tilewright.compiler.reuse import larger_tile
from tilewright.compiler.signature import signature_of
from tilewright.compiler.treatments import Treatment

Size = ct.Constant[int]


@ct.kernel
def batched(a, b, out, M: Size, N: Size, K: Size):
    """A (B, M, K) times a (B, N, K) that is transposed."""
    z, i, j = ct.bid(0), ct.bid(1), ct.bid(2)
    total = ct.zeros((M, N), ct.float32)
    for k in range(ct.num_tiles(a, axis=2, shape=(1, M, K))):
        left = ct.load(a, index=(z, i, k), shape=(1, M, K)).reshape((M, K))
        right = ct.load(b, index=(z, j, k), shape=(1, N, K)).reshape((N, K))
        total = ct.mma(left, right.transpose(), total)
    ct.store(out, index=(z, i, j), tile=total.astype(out.dtype).reshape((1, M, N)))


@ct.kernel
def gated(a, b, c, out, M: Size, N: Size, K: Size):
    """Two products of one left operand."""
    i, j = ct.bid(0), ct.bid(1)
    total, gate = ct.zeros((M, N), ct.float32), ct.zeros((M, N), ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, index=(i, k), shape=(M, K))
        total = ct.mma(left, ct.load(b, index=(k, j), shape=(K, N)), total)
        gate = ct.mma(left, ct.load(c, index=(k, j), shape=(K, N)), gate)
    ct.store(out, index=(i, j), tile=(total * gate).astype(out.dtype))


@ct.kernel
def rounded(a, b, out, M: Size, N: Size, K: Size):
    i, j = ct.bid(0), ct.bid(1)
    total = ct.zeros((M, N), ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, index=(i, k), shape=(M, K)).astype(ct.tfloat32)
        right = ct.load(b, index=(k, j), shape=(K, N)).astype(ct.tfloat32)
        total = ct.mma(left, right, total)
    ct.store(out, index=(i, j), tile=total)


@ct.kernel
def attending(q, k, v, out, M: Size, N: Size, D: Size):
    """The left operand stays, and that of the second product is computed."""
    i = ct.bid(0)
    rows = ct.load(q, index=(i, 0), shape=(M, D))
    total = ct.zeros((M, D), ct.float32)
    for j in range(ct.num_tiles(k, axis=0, shape=(N, D))):
        scores = ct.mma(rows, ct.load(k, index=(j, 0), shape=(N, D)).transpose(), ct.zeros((M, N), ct.float32))
        total = ct.mma(scores.astype(v.dtype), ct.load(v, index=(j, 0), shape=(N, D)), total)
    ct.store(out, index=(i, 0), tile=total.astype(out.dtype))


@cache
def made(
    kernel: Any, *tile: int, arch: str = "sm_90", dtype: torch.dtype = torch.bfloat16, **hints: int
) -> Compilation:
    shape = (4, 512, 512) if kernel is batched else (1024, 1024)
    tensors = [torch.empty(shape, dtype=dtype)] * (4 if kernel in (gated, attending) else 3)
    kernel = kernel.replace_hints(**hints)
    return compile_kernel(kernel, signature_of(kernel, (*tensors, *tile)), arch)


def product(m: int, n: int, k: int) -> dict[str, list[int]]:
    return {"a": [m, k], "b": [k, n], "out": [m, n]}


LARGE = product(8192, 8192, 8192)


def test_a_small_tile_of_a_large_product_is_named_with_its_figures() -> None:
    (finding,) = findings(made(kernels.matmul, 64, 64, 64), LARGE)
    assert finding.treatment is Treatment.TILE_SHAPE
    assert finding.where.startswith("kernels.py:")
    assert "tile of 64x64 does 32 flops for each byte" in finding.evidence
    assert "one of 128x128 does 64" in finding.evidence


@pytest.mark.parametrize(
    ("tile", "larger"), [((64, 128, 64), (128, 128)), ((128, 64, 64), (128, 128)), ((32, 32, 32), (128, 128))]
)
def test_the_larger_tile_is_one_that_fits(tile: tuple[int, ...], larger: tuple[int, int]) -> None:
    found = larger_tile(made(kernels.matmul, *tile), LARGE)
    assert found is not None
    assert found.larger == larger


@pytest.mark.parametrize(
    "shapes",
    [
        product(16, 131072, 4096),  # one row of tiles, as in decoding
        product(131072, 16, 4096),
        product(1024, 1024, 8192),  # larger tiles would leave SMs idle
        product(8192, 8192, 64),  # the result's traffic is most of it
        {"x": [8192, 8192]},  # another array than the kernel loads from
        {"a": [0, 0], "b": [0, 0]},
    ],
    ids=str,
)
def test_none_is_named_where_it_would_not_help(shapes: dict[str, list[int]]) -> None:
    assert larger_tile(made(kernels.matmul, 64, 64, 64), shapes) is None


@pytest.mark.parametrize(("tile", "hints"), [((128, 128, 64), {}), ((128, 256, 64), {"num_worker_warps": 8})])
@pytest.mark.slow
def test_none_is_named_for_a_tile_that_is_large(tile: tuple[int, ...], hints: dict[str, int]) -> None:
    assert larger_tile(made(kernels.matmul, *tile, **hints), LARGE) is None


@pytest.mark.slow
def test_none_is_named_where_something_else_comes_first() -> None:
    assert larger_tile(made(kernels.matmul, 64, 64, 64, num_ctas=2), LARGE) is None  # whose blocks share loads
    assert larger_tile(made(kernels.matmul, 64, 64, 64, arch="sm_80"), LARGE) is None  # slower tensor cores
    assert larger_tile(made(kernels.matmul, 64, 64, 32, dtype=torch.float32), LARGE) is None  # on no tensor cores


def test_operands_are_followed_through_casts_reshapes_and_transpositions() -> None:
    shapes = {"a": [4, 4096, 2048], "b": [4, 8192, 2048]}
    turned = larger_tile(made(batched, 64, 64, 64), shapes)
    assert turned is not None
    assert turned.larger == (128, 128)
    assert larger_tile(made(batched, 64, 64, 64), {"a": [512, 16, 2048], "b": [512, 8192, 2048]}) is None
    floats = larger_tile(made(rounded, 64, 64, 32, dtype=torch.float32), LARGE)
    assert floats is not None
    assert floats.flops_a_byte[:2] == (16.0, 32.0)


def test_results_of_two_products_share_the_registers() -> None:
    found = larger_tile(made(gated, 64, 64, 64), LARGE | {"c": [8192, 8192]})
    assert found is not None
    assert found.flops_a_byte[0] == pytest.approx(2 * 2 * 64 * 64 / (2 * 3 * 64))
    assert 2 * 4 * found.larger[0] * found.larger[1] <= 128 * 255 * 4


@pytest.mark.slow
def test_of_products_of_another_kind_nothing_is_said() -> None:
    assert larger_tile(made(attending, 32, 64, 64), {}) is None
