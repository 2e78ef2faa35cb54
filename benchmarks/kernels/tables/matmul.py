"""Matrix products in float16: a plain grid and a persistent one, both over tiles in bands, and cuBLAS."""

import functools

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
BAND = 8
"""Rows of tiles that blocks visit together, so that they share operands in L2."""


@ct.function
def place(tile, rows, columns):
    """Row and column of a tile, by its number."""
    band = tile // (BAND * columns)
    height = min(rows - band * BAND, BAND)
    rest = tile % (BAND * columns)
    return band * BAND + rest % height, rest // height


@ct.kernel
def plain_kernel(a, b, out, M: Size, N: Size, K: Size):
    i, j = place(ct.bid(0), ct.cdiv(out.shape[0], M), ct.cdiv(out.shape[1], N))
    total = ct.zeros((M, N), ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, index=(i, k), shape=(M, K), padding_mode=ZERO)
        right = ct.load(b, index=(k, j), shape=(K, N), padding_mode=ZERO)
        total = ct.mma(left, right, total)
    ct.store(out, index=(i, j), tile=total.astype(out.dtype))


@ct.kernel
def persistent_kernel(a, b, out, M: Size, N: Size, K: Size):
    rows, columns = ct.cdiv(out.shape[0], M), ct.cdiv(out.shape[1], N)
    for tile in range(ct.bid(0), rows * columns, ct.num_blocks(0)):
        i, j = place(tile, rows, columns)
        total = ct.zeros((M, N), ct.float32)
        for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
            left = ct.load(a, index=(i, k), shape=(M, K), padding_mode=ZERO)
            right = ct.load(b, index=(k, j), shape=(K, N), padding_mode=ZERO)
            total = ct.mma(left, right, total)
        ct.store(out, index=(i, j), tile=total.astype(out.dtype))


@functools.cache
def hinted(kernel, warps, ctas, occupancy):
    """The kernel with these hints; 0 leaves one to the compiler."""
    hints = {"num_worker_warps": warps, "num_ctas": ctas, "occupancy": occupancy}
    return kernel.replace_hints(**{name: value for name, value in hints.items() if value})


def grid(a, b, tile_m, tile_n, ctas, occupancy, persistent):
    """Blocks of a launch: one a tile, or as many as fit on the device at once."""
    tiles = ct.cdiv(a.shape[0], tile_m) * ct.cdiv(b.shape[1], tile_n)
    sms = torch.cuda.get_device_properties(a.device).multi_processor_count
    return (min(sms // (ctas or 1) * (occupancy or 1), tiles) if persistent else tiles,)


def matmul(a, b, tile_m, tile_n, tile_k, warps, ctas, occupancy, persistent):
    """a (M, K) @ b (K, N) of one dtype -> out (M, N) of that dtype, accumulated in float32."""
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    kernel = hinted(persistent_kernel if persistent else plain_kernel, warps, ctas, occupancy)
    blocks = grid(a, b, tile_m, tile_n, ctas, occupancy, persistent)
    ct.launch(torch.cuda.current_stream(), blocks, kernel, (a, b, out, tile_m, tile_n, tile_k))
    return out


def cublas(a, b):
    """The same product by torch."""
    return torch.matmul(a, b)
