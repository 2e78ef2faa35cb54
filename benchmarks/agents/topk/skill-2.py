"""The eight largest values of each row in cuTile: one pass, sorted lists in registers, merged once at the end."""

import math

import cuda.tile as ct
import torch

Size = ct.Constant[int]
NEG_INF = ct.PaddingMode.NEG_INF
K = 8
ROWS = 4  # a row for each warp
TILE = 128  # 16 bytes for each lane
LONGEST = 8192  # a longer row is not unrolled


def order(a, b):
    return ct.maximum(a, b), ct.minimum(a, b)


def insert(t0, t1, t2, t3, t4, t5, t6, t7, a):
    t0, a = order(t0, a)
    t1, a = order(t1, a)
    t2, a = order(t2, a)
    t3, a = order(t3, a)
    t4, a = order(t4, a)
    t5, a = order(t5, a)
    t6, a = order(t6, a)
    return t0, t1, t2, t3, t4, t5, t6, ct.maximum(t7, a)


def sort4(a0, a1, a2, a3):
    a0, a1 = order(a0, a1)
    a2, a3 = order(a2, a3)
    a0, a2 = order(a0, a2)
    a1, a3 = order(a1, a3)
    a1, a2 = order(a1, a2)
    return a0, a1, a2, a3


def merge4(a0, a1, a2, a3, b0, b1, b2, b3):
    """The four largest of two descending lists of four, descending."""
    t0, t1, t2, t3 = ct.maximum(a0, b3), ct.maximum(a1, b2), ct.maximum(a2, b1), ct.maximum(a3, b0)
    t0, t2 = order(t0, t2)
    t1, t3 = order(t1, t3)
    t0, t1 = order(t0, t1)
    t2, t3 = order(t2, t3)
    return t0, t1, t2, t3


def merge8(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7):
    """The eight largest of two descending lists of eight, descending."""
    t0, t1, t2, t3 = ct.maximum(a0, b7), ct.maximum(a1, b6), ct.maximum(a2, b5), ct.maximum(a3, b4)
    t4, t5, t6, t7 = ct.maximum(a4, b3), ct.maximum(a5, b2), ct.maximum(a6, b1), ct.maximum(a7, b0)
    t0, t4 = order(t0, t4)
    t1, t5 = order(t1, t5)
    t2, t6 = order(t2, t6)
    t3, t7 = order(t3, t7)
    t0, t2 = order(t0, t2)
    t1, t3 = order(t1, t3)
    t4, t6 = order(t4, t6)
    t5, t7 = order(t5, t7)
    t0, t1 = order(t0, t1)
    t2, t3 = order(t2, t3)
    t4, t5 = order(t4, t5)
    t6, t7 = order(t6, t7)
    return t0, t1, t2, t3, t4, t5, t6, t7


NOTHING = (-math.inf,) * 8


@ct.kernel(occupancy=8)
def topk_batched(x, out, R: Size, T: Size, STEPS: Size):
    """Whole tiles only: rows a multiple of R, 4 T STEPS columns. Unrolled: 16 loads under way, no copies of registers.

    Each of the T places of a row keeps only its four largest. That loses one of the row's eight at most where a place's fourth
    is above the eighth of all that was kept: then, and only then, the block does its rows again with lists of eight.
    """
    rows = ct.bid(0)
    low = ct.full((R, T), -math.inf, ct.float32)
    t0, t1, t2, t3 = low, low, low, low
    for step in ct.static_iter(range(STEPS)):
        a0 = ct.load(x, (rows, step * 4), (R, T), check_bounds=False, allow_tma=False)
        a1 = ct.load(x, (rows, step * 4 + 1), (R, T), check_bounds=False, allow_tma=False)
        a2 = ct.load(x, (rows, step * 4 + 2), (R, T), check_bounds=False, allow_tma=False)
        a3 = ct.load(x, (rows, step * 4 + 3), (R, T), check_bounds=False, allow_tma=False)
        a0, a1, a2, a3 = sort4(a0, a1, a2, a3)
        t0, t1, t2, t3 = merge4(t0, t1, t2, t3, a0, a1, a2, a3)
    top = ct.reduce((t0, t1, t2, t3, low, low, low, low), 1, merge8, NOTHING, keepdims=True)
    for rank in ct.static_iter(range(8)):
        ct.store(out, (rows, rank), top[rank], check_bounds=False, allow_tma=False)
    lost = ct.max(ct.where(t3 > top[7], 1, 0))
    if lost.item() > 0:
        u0, u1, u2, u3, u4, u5, u6, u7 = low, low, low, low, low, low, low, low
        for step in range(x.shape[1] // T):
            a = ct.load(x, (rows, step), (R, T), check_bounds=False, allow_tma=False)
            u0, u1, u2, u3, u4, u5, u6, u7 = insert(u0, u1, u2, u3, u4, u5, u6, u7, a)
        again = ct.reduce((u0, u1, u2, u3, u4, u5, u6, u7), 1, merge8, NOTHING, keepdims=True)
        for rank in ct.static_iter(range(8)):
            ct.store(out, (rows, rank), again[rank], check_bounds=False, allow_tma=False)


@ct.kernel
def topk_ragged(x, out, R: Size, T: Size):
    """Any shape."""
    rows = ct.bid(0)
    low = ct.full((R, T), -math.inf, ct.float32)
    t0, t1, t2, t3, t4, t5, t6, t7 = low, low, low, low, low, low, low, low
    for step in range(ct.num_tiles(x, axis=1, shape=(R, T))):
        a = ct.load(x, (rows, step), (R, T), padding_mode=NEG_INF, allow_tma=False)
        t0, t1, t2, t3, t4, t5, t6, t7 = insert(t0, t1, t2, t3, t4, t5, t6, t7, a)
    top = ct.reduce((t0, t1, t2, t3, t4, t5, t6, t7), 1, merge8, NOTHING, keepdims=True)
    for rank in ct.static_iter(range(8)):
        ct.store(out, (rows, rank), top[rank], allow_tma=False)


def topk(x):
    """x (M, N) -> the eight largest values of each row (M, 8), largest first."""
    out = torch.empty(x.shape[0], K, dtype=x.dtype, device=x.device)
    rows, columns = x.shape
    grid = (ct.cdiv(rows, ROWS),)
    if rows % ROWS == 0 and columns % (4 * TILE) == 0 and columns <= LONGEST:
        steps = columns // (4 * TILE)
        ct.launch(torch.cuda.current_stream(), grid, topk_batched, (x, out, ROWS, TILE, steps))
    else:
        ct.launch(torch.cuda.current_stream(), grid, topk_ragged, (x, out, ROWS, TILE))
    return out
