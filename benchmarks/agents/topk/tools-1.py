"""The eight largest values of each row in cuTile.

One pass over the row keeps the maximum of each of 256 groups (4 neighbours at a stride of 1024). The eight largest values lie in
the eight groups with the largest maxima, which are gathered once more and merged as sorted lists of eight. Tiles are 128 columns
wide, so that the compiler gives each warp a row, and loads are unrolled and unchecked, so that many are in flight.
"""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
K = 8
ROWS = 4
WIDTH = 1024
GROUP = 4


def first(a, i, b, j):
    """The larger value and its index, of equal ones the smaller index."""
    left = (a > b) | ((a == b) & (i < j))
    return ct.where(left, a, b), ct.where(left, i, j)


def sort8(a, b, c, d, e, f, g, h):
    """Sorts a bitonic sequence of eight, largest first."""
    a, e = ct.maximum(a, e), ct.minimum(a, e)
    b, f = ct.maximum(b, f), ct.minimum(b, f)
    c, g = ct.maximum(c, g), ct.minimum(c, g)
    d, h = ct.maximum(d, h), ct.minimum(d, h)
    a, c = ct.maximum(a, c), ct.minimum(a, c)
    b, d = ct.maximum(b, d), ct.minimum(b, d)
    e, g = ct.maximum(e, g), ct.minimum(e, g)
    f, h = ct.maximum(f, h), ct.minimum(f, h)
    a, b = ct.maximum(a, b), ct.minimum(a, b)
    c, d = ct.maximum(c, d), ct.minimum(c, d)
    e, f = ct.maximum(e, f), ct.minimum(e, f)
    g, h = ct.maximum(g, h), ct.minimum(g, h)
    return a, b, c, d, e, f, g, h


def sort_any8(a, b, c, d, e, f, g, h):
    """Sorts eight, largest first: pairs, fours, then the bitonic eight."""
    a, b = ct.maximum(a, b), ct.minimum(a, b)
    c, d = ct.minimum(c, d), ct.maximum(c, d)
    e, f = ct.maximum(e, f), ct.minimum(e, f)
    g, h = ct.minimum(g, h), ct.maximum(g, h)
    a, c = ct.maximum(a, c), ct.minimum(a, c)
    b, d = ct.maximum(b, d), ct.minimum(b, d)
    e, g = ct.minimum(e, g), ct.maximum(e, g)
    f, h = ct.minimum(f, h), ct.maximum(f, h)
    a, b = ct.maximum(a, b), ct.minimum(a, b)
    c, d = ct.maximum(c, d), ct.minimum(c, d)
    e, f = ct.minimum(e, f), ct.maximum(e, f)
    g, h = ct.minimum(g, h), ct.maximum(g, h)
    return sort8(a, b, c, d, e, f, g, h)


def merge(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7):
    """The eight largest of two sorted eights, sorted."""
    return sort8(
        ct.maximum(a0, b7),
        ct.maximum(a1, b6),
        ct.maximum(a2, b5),
        ct.maximum(a3, b4),
        ct.maximum(a4, b3),
        ct.maximum(a5, b2),
        ct.maximum(a6, b1),
        ct.maximum(a7, b0),
    )


def pick(a, i, b, j):
    """The larger value and its index, of equal ones the first."""
    left = a >= b
    return ct.where(left, a, b), ct.where(left, i, j)


def take(x, t0, t1, t2, t3, t4, t5, t6, t7, lanes, rows, offsets, EVEN):
    """Gathers each row's group with the largest maximum and strikes it out."""
    low = -float("inf")
    v0, i0 = pick(t0, lanes, t1, lanes + 32)
    v1, i1 = pick(t2, lanes + 64, t3, lanes + 96)
    v2, i2 = pick(t4, lanes + 128, t5, lanes + 160)
    v3, i3 = pick(t6, lanes + 192, t7, lanes + 224)
    v0, i0 = pick(v0, i0, v1, i1)
    v2, i2 = pick(v2, i2, v3, i3)
    v0, i0 = pick(v0, i0, v2, i2)
    _, group = ct.reduce((v0, i0), 1, first, (low, 2**30), keepdims=True)
    if EVEN:
        found = ct.gather(x, (rows, group * GROUP + offsets), check_bounds=False)
    else:
        found = ct.gather(x, (rows, group * GROUP + offsets), padding_value=low)
    t0 = ct.where(lanes == group, low, t0)
    t1 = ct.where(lanes == group - 32, low, t1)
    t2 = ct.where(lanes == group - 64, low, t2)
    t3 = ct.where(lanes == group - 96, low, t3)
    t4 = ct.where(lanes == group - 128, low, t4)
    t5 = ct.where(lanes == group - 160, low, t5)
    t6 = ct.where(lanes == group - 192, low, t6)
    t7 = ct.where(lanes == group - 224, low, t7)
    return found, t0, t1, t2, t3, t4, t5, t6, t7


def part(x, block, index, rows, spread, R, EVEN):
    """128 columns of R rows; beyond the array -inf."""
    if EVEN:
        return ct.load(x, (block, index), (R, 128), allow_tma=False, check_bounds=False)
    else:
        return ct.gather(x, (rows, index * 128 + spread), padding_value=-float("inf"))


def fold(t, R):
    """The maxima of four neighbours, kept above -inf, which marks the groups already taken."""
    return ct.maximum(ct.max(ct.reshape(t, (R, 32, GROUP)), axis=2), -3.4028234e38)


@ct.kernel(occupancy=4)
def topk_kernel(x, out, R: Size, STEPS: Size, S: Size, EVEN: Size):
    block = ct.bid(0)
    rows = ct.reshape(ct.arange(R, dtype=ct.int32), (R, 1)) + block * R
    wide = ct.reshape(ct.arange(128, dtype=ct.int32), (1, 128))
    t0 = part(x, block, 0, rows, wide, R, EVEN)
    t1 = part(x, block, 1, rows, wide, R, EVEN)
    t2 = part(x, block, 2, rows, wide, R, EVEN)
    t3 = part(x, block, 3, rows, wide, R, EVEN)
    t4 = part(x, block, 4, rows, wide, R, EVEN)
    t5 = part(x, block, 5, rows, wide, R, EVEN)
    t6 = part(x, block, 6, rows, wide, R, EVEN)
    t7 = part(x, block, 7, rows, wide, R, EVEN)
    for step in ct.static_iter(range(1, STEPS)):
        t0 = ct.maximum(t0, part(x, block, step * 8, rows, wide, R, EVEN))
        t1 = ct.maximum(t1, part(x, block, step * 8 + 1, rows, wide, R, EVEN))
        t2 = ct.maximum(t2, part(x, block, step * 8 + 2, rows, wide, R, EVEN))
        t3 = ct.maximum(t3, part(x, block, step * 8 + 3, rows, wide, R, EVEN))
        t4 = ct.maximum(t4, part(x, block, step * 8 + 4, rows, wide, R, EVEN))
        t5 = ct.maximum(t5, part(x, block, step * 8 + 5, rows, wide, R, EVEN))
        t6 = ct.maximum(t6, part(x, block, step * 8 + 6, rows, wide, R, EVEN))
        t7 = ct.maximum(t7, part(x, block, step * 8 + 7, rows, wide, R, EVEN))
    t0, t1, t2, t3 = fold(t0, R), fold(t1, R), fold(t2, R), fold(t3, R)
    t4, t5, t6, t7 = fold(t4, R), fold(t5, R), fold(t6, R), fold(t7, R)
    lanes = ct.broadcast_to(ct.reshape(ct.arange(32, dtype=ct.int32), (1, 32)), (R, 32))
    spread = ct.reshape(ct.arange(S * GROUP, dtype=ct.int32), (1, S * GROUP))
    offsets = (spread // GROUP) * WIDTH + spread % GROUP
    a, t0, t1, t2, t3, t4, t5, t6, t7 = take(x, t0, t1, t2, t3, t4, t5, t6, t7, lanes, rows, offsets, EVEN)
    b, t0, t1, t2, t3, t4, t5, t6, t7 = take(x, t0, t1, t2, t3, t4, t5, t6, t7, lanes, rows, offsets, EVEN)
    c, t0, t1, t2, t3, t4, t5, t6, t7 = take(x, t0, t1, t2, t3, t4, t5, t6, t7, lanes, rows, offsets, EVEN)
    d, t0, t1, t2, t3, t4, t5, t6, t7 = take(x, t0, t1, t2, t3, t4, t5, t6, t7, lanes, rows, offsets, EVEN)
    e, t0, t1, t2, t3, t4, t5, t6, t7 = take(x, t0, t1, t2, t3, t4, t5, t6, t7, lanes, rows, offsets, EVEN)
    f, t0, t1, t2, t3, t4, t5, t6, t7 = take(x, t0, t1, t2, t3, t4, t5, t6, t7, lanes, rows, offsets, EVEN)
    g, t0, t1, t2, t3, t4, t5, t6, t7 = take(x, t0, t1, t2, t3, t4, t5, t6, t7, lanes, rows, offsets, EVEN)
    h, t0, t1, t2, t3, t4, t5, t6, t7 = take(x, t0, t1, t2, t3, t4, t5, t6, t7, lanes, rows, offsets, EVEN)
    a, b, c, d, e, f, g, h = sort_any8(a, b, c, d, e, f, g, h)
    low = -float("inf")
    a, b, c, d, e, f, g, h = ct.reduce(
        (a, b, c, d, e, f, g, h), 1, merge, (low, low, low, low, low, low, low, low), keepdims=True
    )
    rank = ct.reshape(ct.arange(8, dtype=ct.int32), (1, 8))
    ab, cd = ct.where(rank == 0, a, b), ct.where(rank == 2, c, d)
    ef, gh = ct.where(rank == 4, e, f), ct.where(rank == 6, g, h)
    best = ct.where(rank < 4, ct.where(rank < 2, ab, cd), ct.where(rank < 6, ef, gh))
    ct.store(out, (block, 0), best)


def topk(x):
    """x (M, N) -> the eight largest values of each row (M, 8), largest first."""
    M, N = x.shape
    out = torch.empty(M, K, dtype=x.dtype, device=x.device)
    steps = -(-N // WIDTH)
    spread = 1 << (steps - 1).bit_length()
    args = (x, out, ROWS, steps, spread, int(N == spread * WIDTH and M % ROWS == 0))
    ct.launch(torch.cuda.current_stream(), (-(-M // ROWS),), topk_kernel, args)
    return out
