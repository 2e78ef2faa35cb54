"""The eight largest values of each row in cuTile: one pass over the row, then a tree of top-eight merges.

Every column of the (steps, T) view of a row keeps its three largest values.  The eight
largest of the first and second values are the answer unless some column's third exceeds the eighth of them; that
happens for a few rows in ten thousand of random input, and then the row is read again with eight values a column.
"""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
NEG_INF = ct.PaddingMode.NEG_INF
K = 8
LOW = float("-inf")
LOWEST = -3.4e38
LANES = 128
TILE = 512
STEPS_MOST = 32


def merge8(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7):
    """The eight largest of two lists of eight, each largest first."""
    c0, c1, c2, c3 = max(a0, b7), max(a1, b6), max(a2, b5), max(a3, b4)
    c4, c5, c6, c7 = max(a4, b3), max(a5, b2), max(a6, b1), max(a7, b0)
    d0, d4 = max(c0, c4), min(c0, c4)
    d1, d5 = max(c1, c5), min(c1, c5)
    d2, d6 = max(c2, c6), min(c2, c6)
    d3, d7 = max(c3, c7), min(c3, c7)
    e0, e2 = max(d0, d2), min(d0, d2)
    e1, e3 = max(d1, d3), min(d1, d3)
    e4, e6 = max(d4, d6), min(d4, d6)
    e5, e7 = max(d5, d7), min(d5, d7)
    return (max(e0, e1), min(e0, e1), max(e2, e3), min(e2, e3),
            max(e4, e5), min(e4, e5), max(e6, e7), min(e6, e7))


def merge9(a0, a1, a2, a3, a4, a5, a6, a7, a8, b0, b1, b2, b3, b4, b5, b6, b7, b8):
    """merge8 with a ninth value of which the larger is kept."""
    return merge8(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7) + (max(a8, b8),)


def order(a, b):
    return max(a, b), min(a, b)


def merge2(a0, a1, b0, b1):
    """Four values in order from two ordered pairs."""
    c0, c2 = order(a0, b0)
    c1, c3 = order(a1, b1)
    c1, c2 = order(c1, c2)
    return c0, c1, c2, c3


def merge4(a0, a1, a2, a3, b0, b1, b2, b3):
    """Eight values in order from two ordered fours."""
    e0, e1, e2, e3 = merge2(a0, a2, b0, b2)
    f0, f1, f2, f3 = merge2(a1, a3, b1, b3)
    e1, f0 = order(e1, f0)
    e2, f1 = order(e2, f1)
    e3, f2 = order(e3, f2)
    return e0, e1, f0, e2, f1, e3, f2, f3


def top3_of_pairs(a0, a1, b0, b1):
    """The three largest of two ordered pairs."""
    c, d = order(min(a0, b0), max(a1, b1))
    return max(a0, b0), c, d


def merge3(a0, a1, a2, b0, b1, b2):
    """The three largest of two ordered threes."""
    c, d = order(min(a0, b0), max(a1, b1))
    return max(a0, b0), c, max(d, max(a2, b2))


def part(a, index):
    """Every fourth value of a (1, TILE) tile, from index on: a thread's own with 16-byte loads."""
    return ct.reshape(ct.extract(ct.reshape(a, (1, LANES, 4)), (0, 0, index), (1, LANES, 1)), (LANES,))


def load_row(x, row, step, WHOLE):
    if WHOLE:
        return ct.load(x, (row, step), (1, TILE), check_bounds=False, allow_tma=False)
    return ct.load(x, (row, step), (1, TILE), padding_mode=NEG_INF, allow_tma=False)


def insert8(m0, m1, m2, m3, m4, m5, m6, m7, a):
    return (max(m0, a), max(m1, min(m0, a)), max(m2, min(m1, a)), max(m3, min(m2, a)),
            max(m4, min(m3, a)), max(m5, min(m4, a)), max(m6, min(m5, a)), max(m7, min(m6, a)))


def part8(m, index):
    return (part(m[0], index), part(m[1], index), part(m[2], index), part(m[3], index),
            part(m[4], index), part(m[5], index), part(m[6], index), part(m[7], index))


def store8(out, row, top):
    for rank in ct.static_iter(range(8)):
        ct.store(out, (row, rank), ct.reshape(top[rank], (1, 1)))


def exact8(x, row, STEPS, WHOLE):
    """The eight largest values of a row, with eight kept for every column."""
    low = ct.full((1, TILE), LOW, ct.float32)
    e = (low, low, low, low, low, low, low, low)
    for step in range(STEPS // 4):
        for k in ct.static_iter(range(4)):
            e = insert8(*e, load_row(x, row, 4 * step + k, WHOLE))
    for step in ct.static_iter(range(STEPS // 4 * 4, STEPS)):
        e = insert8(*e, load_row(x, row, step, WHOLE))
    e01 = merge8(*part8(e, 0), *part8(e, 1))
    e23 = merge8(*part8(e, 2), *part8(e, 3))
    return ct.reduce(merge8(*e01, *e23), 0, merge8, (LOW, LOW, LOW, LOW, LOW, LOW, LOW, LOW))


@ct.kernel
def topk_kernel(x, out, STEPS: Size, WHOLE: ct.Constant[bool]):
    row = ct.bid(0)
    low = ct.full((1, TILE), LOW, ct.float32)
    m = (low, low, low)
    for four in ct.static_iter(range(STEPS // 4)):
        p = order(load_row(x, row, 4 * four, WHOLE), load_row(x, row, 4 * four + 1, WHOLE))
        q = order(load_row(x, row, 4 * four + 2, WHOLE), load_row(x, row, 4 * four + 3, WHOLE))
        t = top3_of_pairs(*p, *q)
        if four == 0:
            m = t
        else:
            m = merge3(*m, *t)
    for step in ct.static_iter(range(STEPS // 4 * 4, STEPS)):
        a = load_row(x, row, step, WHOLE)
        m = (max(m[0], a), max(m[1], min(m[0], a)), max(m[2], min(m[1], a)))
    third = max(max(part(m[2], 0), part(m[2], 1)), max(part(m[2], 2), part(m[2], 3)))
    left = merge2(part(m[0], 0), part(m[1], 0), part(m[0], 1), part(m[1], 1))
    right = merge2(part(m[0], 2), part(m[1], 2), part(m[0], 3), part(m[1], 3))
    top = ct.reduce(merge4(*left, *right) + (third,), 0, merge9,
                    (LOW, LOW, LOW, LOW, LOW, LOW, LOW, LOW, LOW))
    if top[8] > top[7]:
        store8(out, row, exact8(x, row, STEPS, WHOLE))
    else:
        store8(out, row, top)


@ct.kernel
def topk_rounds_kernel(x, out, T: Size, TOP: Size):
    row = ct.bid(0)
    steps = ct.num_tiles(x, axis=1, shape=(1, T))
    above = ct.full((1, 1), 3.4e38, ct.float32)
    taken = ct.zeros((1, 1), ct.int32)
    for rank in range(TOP):
        best = ct.full((1, 1), LOWEST, ct.float32)
        ties = ct.zeros((1, 1), ct.int32)
        for step in range(steps):
            a = ct.load(x, (row, step), (1, T), padding_mode=NEG_INF)
            below = ct.where(a < above, a, LOWEST)
            best = ct.maximum(best, ct.max(below, axis=1, keepdims=True))
            ties += ct.sum(ct.where(a == above, 1, 0), axis=1, keepdims=True)
        again = taken < ties
        value = ct.where(again, above, best)
        ct.store(out, (row, rank), value)
        taken = ct.where(again, taken + 1, ct.full((1, 1), 1, ct.int32))
        above = value


def topk(x):
    """x (M, N) -> the eight largest values of each row (M, 8), largest first."""
    out = torch.empty(x.shape[0], K, dtype=x.dtype, device=x.device)
    steps = -(-x.shape[1] // TILE)
    if x.is_cuda and steps <= STEPS_MOST:
        kernel, arguments = topk_kernel, (x, out, steps, x.shape[1] % TILE == 0)
    else:
        kernel, arguments = topk_rounds_kernel, (x, out, 1024, K)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), kernel, arguments)
    return out
