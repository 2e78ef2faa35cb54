"""Kernels for the interpreter's tests; a kernel's source must lie in a file."""

from typing import Any

import cuda.tile as ct

from tilewright.compiler.assembling import assemble
from tilewright.compiler.compilation import Compilation
from tilewright.compiler.cutile import lower

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def softmax(x, out, T: Size):
    row = ct.bid(0)
    a = ct.load(x, index=(row, 0), shape=(1, T), padding_mode=ct.PaddingMode.NEG_INF)
    e = ct.exp(a - ct.max(a, axis=1, keepdims=True))
    ct.store(out, index=(row, 0), tile=e / ct.sum(e, axis=1, keepdims=True))


@ct.kernel
def permuted_copy(x, out, A: Size, B: Size, C: Size):
    i, j = ct.bid(0), ct.bid(1)
    a = ct.load(x, index=(i, j, 0), shape=(A, B, C), padding_mode=ZERO)
    ct.store(out, index=(0, j, i), tile=ct.permute(a, (2, 1, 0)))


@ct.kernel
def matmul(a, b, out, M: Size, N: Size, K: Size):
    i, j = ct.bid(0), ct.bid(1)
    total = ct.zeros((M, N), ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, index=(i, k), shape=(M, K), padding_mode=ZERO)
        right = ct.load(b, index=(k, j), shape=(K, N), padding_mode=ZERO)
        total = ct.mma(left, right, total)
    ct.store(out, index=(i, j), tile=total.astype(out.dtype))


@ct.kernel
def casts(x, out, T: Size):
    i = ct.bid(0)
    a = ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO)
    ct.store(out, index=(i,), tile=a.astype(out.dtype))


@ct.kernel
def scatter_out_of_bounds(x, out, T: Size):
    places = ct.arange(T, dtype=ct.int32) + 1000
    ct.scatter(out, places, ct.load(x, index=(0,), shape=(T,)), check_bounds=False)


@ct.kernel
def asserts(x, T: Size):
    a = ct.load(x, index=(0,), shape=(T,))
    ct.assert_(a > 0, "all positive")


@ct.kernel
def triangle(x, out):
    """Block i of a row of blocks reads i + 1 tiles."""
    i = ct.bid(0)
    total = ct.zeros((4,), ct.float32)
    for step in range(i + 1):
        total += ct.load(x, index=(i * 64 + step, 0), shape=(1, 4)).reshape((4,))
    ct.store(out, index=(i + 64 * (ct.bid(1) + 3 * ct.bid(2)),), tile=ct.sum(total, axis=0, keepdims=True))


@ct.kernel
def rectangle(x, out, R: Size, C: Size):
    tile = ct.load(x, index=(ct.bid(0), ct.bid(1)), shape=(R, C), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(ct.bid(0), ct.bid(1)), tile=tile)


@ct.kernel
def banded(x, y, out, T: Size, G: Size):
    """Tiles of out in bands of G rows, down a band's columns first: neighbours mostly load the same tile of y."""
    band = G * ct.cdiv(y.shape[1], T)
    row = ct.bid(0) // band * G + ct.bid(0) % G
    column = ct.bid(0) % band // G
    a = ct.load(x, index=(row, 0), shape=(T, T), padding_mode=ZERO)
    b = ct.load(y, index=(0, column), shape=(T, T), padding_mode=ZERO)
    ct.store(out, index=(row, column), tile=a + b)


@ct.kernel
def multiples(x, out, trips: int, TILE: ct.Constant[int]):
    acc = ct.zeros((TILE,), ct.float32)
    for i in range(trips):
        acc = acc + ct.load(x, (i % 16,), (TILE,)) * 1.5
    ct.store(out, (0,), acc)


@ct.kernel
def printing(x, y):
    block = ct.bid(0)
    tile = ct.load(x, (0, 0), (2, 2))
    ct.printf("block %d:%8.2e|%%", block, tile)
    ct.printf("%d %u %x %5lld|\n", ct.load(y, (block,), (1,)), block - 1, block - 1, ct.load(y, (0,), (2,)))


@ct.kernel
def printed(x):
    print(f"tile {ct.bid(0)}: {ct.load(x, (0,), (2,)):.3f}", end=";")


@ct.kernel
def roots(x, root, reciprocal, magnitude, TILE: ct.Constant[int]):
    i = ct.bid(0)
    tile = ct.load(x, (i,), (TILE,))
    ct.store(root, (i,), ct.sqrt(tile))
    ct.store(reciprocal, (i,), ct.rsqrt(tile))
    ct.store(magnitude, (i,), ct.astype(abs(tile > 1.0), ct.int32))


@ct.kernel
def nothing(pair, number):
    pass


@ct.kernel
def annotated(pair: tuple[int, ct.Constant[int]], fixed: ct.Constant[tuple]):
    pass


def compiled(kernel: Any, signature: Any, arch: str, timeout_s: float = 60.0) -> Compilation:
    return assemble(lower(kernel, signature, arch), timeout_s)
