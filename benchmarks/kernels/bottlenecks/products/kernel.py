"""Matrix products: one that is as it should be, and three with a flaw each."""

import cuda.tile as ct
import torch

ZERO = ct.PaddingMode.ZERO
BAND = 8
Size = ct.Constant[int]


@ct.kernel
def product_kernel(a, b, out, TM: Size, TN: Size, TK: Size, WIDE: ct.Constant[bool]):
    rows, columns = ct.cdiv(out.shape[0], TM), ct.cdiv(out.shape[1], TN)
    band = BAND * columns
    first = ct.bid(0) // band * BAND
    height = min(rows - first, BAND)
    row, column = first + ct.bid(0) % band % height, ct.bid(0) % band // height
    total = ct.zeros((TM, TN), ct.float32)
    for step in range(ct.num_tiles(a, axis=1, shape=(TM, TK))):
        left = ct.load(a, index=(row, step), shape=(TM, TK), padding_mode=ZERO)
        right = ct.load(b, index=(step, column), shape=(TK, TN), padding_mode=ZERO)
        if WIDE:
            left, right = left.astype(ct.float32), right.astype(ct.float32)
        total = ct.mma(left, right, total)
    ct.store(out, index=(row, column), tile=total.astype(out.dtype))


EIGHT_WARPS = product_kernel.replace_hints(num_worker_warps=8)
FOUR_WARPS = product_kernel.replace_hints(num_worker_warps=4)


def _launched(kernel, a, b, tile, wide=False):
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    grid = (ct.cdiv(out.shape[0], tile[0]) * ct.cdiv(out.shape[1], tile[1]),)
    ct.launch(torch.cuda.current_stream(), grid, kernel, (a, b, out, *tile, wide))
    return out


def at_the_ceiling(a, b):
    """Large tiles, the warps that they need, bands of rows."""
    return _launched(EIGHT_WARPS, a, b, (128, 256, 128))


def spilling(a, b):
    """The same accumulator on half the warps: it does not fit into their registers."""
    return _launched(FOUR_WARPS, a, b, (128, 256, 64))


def tail_wave(a, b):
    """One tile a block and one block a SM: a few tiles more than there are SMs take twice the time."""
    return _launched(EIGHT_WARPS, a, b, (128, 256, 64))


def without_tensor_cores(a, b):
    """Operands made float32 before the product, which tensor cores do not take."""
    return _launched(product_kernel, a, b, (64, 64, 32), wide=True)
