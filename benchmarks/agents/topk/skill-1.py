"""The eight largest values of each row in cuTile, the row read once.

Every lane of a (R, W) tile keeps the four largest of each half of its column, in descending order: four tiles at a time
are sorted against each other by a network, element by element, and merged into the list by another. One reduction
merges the lanes. Only if some list's last value is above the eighth of its row can a list have dropped too much: then
the block goes over its rows once more with lists of eight, which lose nothing.
"""

import math

import cuda.tile as ct
import torch

Size = ct.Constant[int]
Flag = ct.Constant[bool]
NEG_INF = ct.PaddingMode.NEG_INF
LOW = -math.inf
K = 8
R = 4
W = 128


def order(a, b):
    return ct.maximum(a, b), ct.minimum(a, b)


def sort(v0, v1, v2, v3, v4, v5, v6, v7):
    """Descending, by the smallest network of eight (19 comparisons)."""
    v0, v1 = order(v0, v1)
    v2, v3 = order(v2, v3)
    v4, v5 = order(v4, v5)
    v6, v7 = order(v6, v7)
    v0, v2 = order(v0, v2)
    v1, v3 = order(v1, v3)
    v4, v6 = order(v4, v6)
    v5, v7 = order(v5, v7)
    v1, v2 = order(v1, v2)
    v5, v6 = order(v5, v6)
    v0, v4 = order(v0, v4)
    v1, v5 = order(v1, v5)
    v2, v6 = order(v2, v6)
    v3, v7 = order(v3, v7)
    v2, v4 = order(v2, v4)
    v3, v5 = order(v3, v5)
    v1, v2 = order(v1, v2)
    v3, v4 = order(v3, v4)
    v5, v6 = order(v5, v6)
    return v0, v1, v2, v3, v4, v5, v6, v7


def merge(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7):
    """The eight largest of two descending lists of eight, descending."""
    v0, v1, v2, v3 = ct.maximum(a0, b7), ct.maximum(a1, b6), ct.maximum(a2, b5), ct.maximum(a3, b4)
    v4, v5, v6, v7 = ct.maximum(a4, b3), ct.maximum(a5, b2), ct.maximum(a6, b1), ct.maximum(a7, b0)
    v0, v4 = order(v0, v4)
    v1, v5 = order(v1, v5)
    v2, v6 = order(v2, v6)
    v3, v7 = order(v3, v7)
    v0, v2 = order(v0, v2)
    v1, v3 = order(v1, v3)
    v4, v6 = order(v4, v6)
    v5, v7 = order(v5, v7)
    v0, v1 = order(v0, v1)
    v2, v3 = order(v2, v3)
    v4, v5 = order(v4, v5)
    v6, v7 = order(v6, v7)
    return v0, v1, v2, v3, v4, v5, v6, v7


def fetch(x, block, first, R, W, FULL):
    """Eight tiles that begin inside of every row."""
    tiles = ()
    for i in ct.static_iter(range(8)):
        if FULL:
            tiles = tiles + (ct.load(x, (block, first + i), (R, W), check_bounds=False, allow_tma=False),)
        else:
            tiles = tiles + (ct.load(x, (block, first + i), (R, W), padding_mode=NEG_INF, allow_tma=False),)
    return tiles


def order_four(v0, v1, v2, v3):
    """Descending."""
    v0, v1 = order(v0, v1)
    v2, v3 = order(v2, v3)
    v0, v2 = order(v0, v2)
    v1, v3 = order(v1, v3)
    v1, v2 = order(v1, v2)
    return v0, v1, v2, v3


def add_four(a0, a1, a2, a3, v0, v1, v2, v3):
    """The four largest of a descending list and four values, descending."""
    v0, v1, v2, v3 = order_four(v0, v1, v2, v3)
    v0, v1, v2, v3 = ct.maximum(a0, v3), ct.maximum(a1, v2), ct.maximum(a2, v1), ct.maximum(a3, v0)
    v0, v2 = order(v0, v2)
    v1, v3 = order(v1, v3)
    v0, v1 = order(v0, v1)
    v2, v3 = order(v2, v3)
    return v0, v1, v2, v3


def join(a0, a1, a2, a3, b0, b1, b2, b3):
    """Two descending lists of four as one of eight."""
    v0, v4 = order(a0, b3)
    v1, v5 = order(a1, b2)
    v2, v6 = order(a2, b1)
    v3, v7 = order(a3, b0)
    v0, v2 = order(v0, v2)
    v1, v3 = order(v1, v3)
    v4, v6 = order(v4, v6)
    v5, v7 = order(v5, v7)
    v0, v1 = order(v0, v1)
    v2, v3 = order(v2, v3)
    v4, v5 = order(v4, v5)
    v6, v7 = order(v6, v7)
    return v0, v1, v2, v3, v4, v5, v6, v7


def fetch_rest(x, block, first, count, R, W):
    """The last tiles of the rows, and tiles of minus infinity up to eight."""
    tiles = ()
    for i in ct.static_iter(range(8)):
        if i < count:
            tiles = tiles + (ct.load(x, (block, first + i), (R, W), padding_mode=NEG_INF, allow_tma=False),)
        else:
            tiles = tiles + (ct.full((R, W), LOW, ct.float32),)
    return tiles


def over_lanes(t0, t1, t2, t3, t4, t5, t6, t7):
    lists = (t0, t1, t2, t3, t4, t5, t6, t7)
    return ct.reduce(lists, 1, merge, (LOW, LOW, LOW, LOW, LOW, LOW, LOW, LOW), keepdims=True)


def put(out, block, top, R):
    ranks = ct.arange(8, dtype=ct.int32)[None, :]
    result = ct.full((R, 8), LOW, ct.float32)
    for rank in ct.static_iter(range(8)):
        result = ct.where(ranks == rank, top[rank], result)
    ct.store(out, (block, 0), result, allow_tma=False)


@ct.kernel(occupancy=4)
def topk_kernel(x, out, R: Size, W: Size, STEPS: Size, REST: Size, FULL: Flag):
    block = ct.bid(0)
    none = ct.full((R, W), LOW, ct.float32)
    t0, t1, t2, t3 = none, none, none, none
    u0, u1, u2, u3 = none, none, none, none
    if STEPS > 0:
        n0, n1, n2, n3, n4, n5, n6, n7 = fetch(x, block, 0, R, W, FULL)
        for step in range(1, STEPS):
            a0, a1, a2, a3, a4, a5, a6, a7 = n0, n1, n2, n3, n4, n5, n6, n7
            n0, n1, n2, n3, n4, n5, n6, n7 = fetch(x, block, 8 * step, R, W, FULL)
            t0, t1, t2, t3 = add_four(t0, t1, t2, t3, a0, a1, a2, a3)
            u0, u1, u2, u3 = add_four(u0, u1, u2, u3, a4, a5, a6, a7)
        t0, t1, t2, t3 = add_four(t0, t1, t2, t3, n0, n1, n2, n3)
        u0, u1, u2, u3 = add_four(u0, u1, u2, u3, n4, n5, n6, n7)
    if REST > 0:
        n0, n1, n2, n3, n4, n5, n6, n7 = fetch_rest(x, block, 8 * STEPS, REST, R, W)
        t0, t1, t2, t3 = add_four(t0, t1, t2, t3, n0, n1, n2, n3)
        u0, u1, u2, u3 = add_four(u0, u1, u2, u3, n4, n5, n6, n7)
    top = over_lanes(*join(t0, t1, t2, t3, u0, u1, u2, u3))
    put(out, block, top, R)
    lost = ct.max(ct.where(ct.maximum(t3, u3) > top[7], 1, 0))
    if lost > 0:
        t0, t1, t2, t3, t4, t5, t6, t7 = none, none, none, none, none, none, none, none
        for step in range(STEPS):
            n0, n1, n2, n3, n4, n5, n6, n7 = sort(*fetch(x, block, 8 * step, R, W, FULL))
            t0, t1, t2, t3, t4, t5, t6, t7 = merge(t0, t1, t2, t3, t4, t5, t6, t7, n0, n1, n2, n3, n4, n5, n6, n7)
        if REST > 0:
            n0, n1, n2, n3, n4, n5, n6, n7 = sort(*fetch_rest(x, block, 8 * STEPS, REST, R, W))
            t0, t1, t2, t3, t4, t5, t6, t7 = merge(t0, t1, t2, t3, t4, t5, t6, t7, n0, n1, n2, n3, n4, n5, n6, n7)
        put(out, block, over_lanes(t0, t1, t2, t3, t4, t5, t6, t7), R)


def topk(x):
    """x (M, N) -> the eight largest values of each row (M, 8), largest first."""
    rows, columns = x.shape
    out = torch.empty(rows, K, dtype=x.dtype, device=x.device)
    steps = columns // (8 * W)
    rest = ct.cdiv(columns - steps * 8 * W, W)
    arguments = (x, out, R, W, steps, rest, rows % R == 0)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(rows, R),), topk_kernel, arguments)
    return out
