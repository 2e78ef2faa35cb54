"""Backward of layer norm in cuTile: one pass over dy and x, then a sum over the blocks' partial rows."""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
BLOCKS = 256  # most blocks of the pass over the rows, and the height of a tile of the sum: a power of two
COLUMNS = 32  # columns of a block of the sum


def add_pairs(a, b, c, d):
    return a + c, b + d


@ct.kernel(occupancy=2)
def rows_kernel(
    dy, x, weight, mean, rstd, dx, part_w, part_b, M, each, N: Size, H: Size, W: Size, BOUNDS: ct.Constant[bool]
):
    """A block's rows follow one another, so that mean and rstd come from L1; a row is one (H, W) tile of the views."""
    block = ct.bid(0)
    first = block * each
    end = min(first + each, M)
    w = ct.load(weight, (0, 0), (H, W), padding_mode=ZERO).astype(ct.float32)
    dw = ct.zeros((H, W), ct.float32)
    db = ct.zeros((H, W), ct.float32)
    mu = ct.load(mean, (first,), (1,), check_bounds=False).reshape((1, 1))
    r = ct.load(rstd, (first,), (1,), check_bounds=False).reshape((1, 1))
    for row in range(first, end):
        d = ct.load(dy, (row, 0), (H, W), padding_mode=ZERO).astype(ct.float32)
        xhat = ct.load(x, (row, 0), (H, W), padding_mode=ZERO).astype(ct.float32) * r - mu * r
        following = min(row + 1, M - 1)
        mu_next = ct.load(mean, (following,), (1,), check_bounds=False).reshape((1, 1))
        r_next = ct.load(rstd, (following,), (1,), check_bounds=False).reshape((1, 1))
        g = d * w
        dw += d * xhat
        db += d
        both = (ct.reshape(g, (1, H * W)), ct.reshape(g * xhat, (1, H * W)))
        sum_g, sum_gx = ct.reduce(both, 1, add_pairs, (0.0, 0.0), keepdims=True)
        a = r * (sum_g * (1.0 / N))
        b = r * (sum_gx * (1.0 / N))
        ct.store(dx, (row, 0), (r * g - (xhat * b + a)).astype(dx.dtype), allow_tma=False, check_bounds=BOUNDS)
        mu = mu_next
        r = r_next
    ct.store(part_w, (block, 0), dw)
    ct.store(part_b, (block, 0), db)


@ct.kernel
def sum_kernel(part_w, part_b, dweight, dbias, G: Size, C: Size):
    column = ct.bid(0)
    w = ct.load(part_w, (0, column), (G, C), padding_mode=ZERO)
    b = ct.load(part_b, (0, column), (G, C), padding_mode=ZERO)
    ct.store(dweight, (column,), ct.sum(w, axis=0).astype(dweight.dtype))
    ct.store(dbias, (column,), ct.sum(b, axis=0).astype(dbias.dtype))


def layernorm_backward(dy, x, weight, mean, rstd):
    """dy, x (M, N), weight (N,), mean, rstd (M,) -> dx (M, N), dweight (N,), dbias (N,)."""
    rows, columns = x.shape
    each = -(-rows // BLOCKS)
    blocks = -(-rows // each)  # none without a row
    dx = torch.empty_like(x)
    part_w = torch.empty((blocks, columns), dtype=torch.float32, device=x.device)
    part_b = torch.empty_like(part_w)
    dweight = torch.empty(columns, dtype=torch.float32, device=x.device)
    dbias = torch.empty_like(dweight)
    stream = torch.cuda.current_stream()
    width = 1 << (columns - 1).bit_length()
    whole = width == columns
    # The compiler splits a TMA box over the columns; a row folded to a width of 256 takes a fourth of the transfers.
    h, w = (columns // 256, 256) if whole and columns > 256 else (1, width)
    fold = (-1, columns // h)
    args = [t.view(fold) for t in (dy, x, weight)] + [mean, rstd] + [t.view(fold) for t in (dx, part_w, part_b)]
    ct.launch(stream, (blocks,), rows_kernel, (*args, rows, each, columns, h, w, not whole))
    ct.launch(stream, (ct.cdiv(columns, COLUMNS),), sum_kernel, (part_w, part_b, dweight, dbias, BLOCKS, COLUMNS))
    return dx, dweight, dbias
