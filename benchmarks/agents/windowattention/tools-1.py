"""Sliding-window attention in cuTile."""

import math

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
APPROX = ct.RoundingMode.APPROX
TILE_M, TILE_N = 128, 128
HUGE = 1e9


def attend(j, cut, state, query, rows, k, v, batch, group, scale, coarse, window, TM, TN, D):
    """The state (top, total, mixed) once the key tile j is in it; only where it is cut does a query see less than all.

    Where the greatest score is huge, what score * scale lost when it was rounded would count in a fused multiply-add,
    so such a row takes coarse, a power of two above scale; scores that differ at all differ by far too much there.
    """
    top, total, mixed = state
    keys = ct.load(k, (batch, group, j, 0), (1, 1, TN, D), padding_mode=ZERO, latency=2).reshape((TN, D))
    score = ct.mma(query, keys.transpose(), ct.zeros((TM, TN), ct.float32))
    if cut:
        far = rows - (j * TN + ct.arange(TN, dtype=ct.int32))[None, :]
        seen = ct.bitcast(far, ct.uint32) < ct.bitcast(window, ct.uint32)  # one comparison: 0 <= far < window
        score = ct.where(seen, score, -math.inf)
    best = ct.max(score, axis=1, keepdims=True)
    factor = ct.where(ct.abs(best) < HUGE, scale, coarse)
    higher = ct.maximum(top, best * factor)
    weights = ct.exp2(score * factor - higher, flush_to_zero=True)
    fade = ct.exp2(top - higher, flush_to_zero=True)
    total = total * fade + ct.sum(weights, axis=1, keepdims=True)
    values = ct.load(v, (batch, group, j, 0), (1, 1, TN, D), padding_mode=ZERO, latency=2).reshape((TN, D))
    return higher, total, ct.mma(weights.astype(v.dtype), values, mixed * fade)


@ct.kernel(num_worker_warps=8)
def window_attention_kernel(q, k, v, out, scale, coarse, window, EACH: Size, TM: Size, TN: Size, D: Size):
    """scale has the factor log2(e) in it, since the weights are powers of two."""
    head, batch = ct.bid(0), ct.bid(1)
    step = ct.num_blocks(2) - 1 - ct.bid(2)  # the shortest come last; heads that share keys run together
    group = head // EACH
    query = ct.load(q, (batch, head, step, 0), (1, 1, TM, D), padding_mode=ZERO).reshape((TM, D))
    start = step * TM
    rows = (start + ct.arange(TM, dtype=ct.int32))[:, None]
    top = ct.full((TM, 1), -1e30, ct.float32)  # finite, so that hidden scores (-inf) weigh 0 even in a row of them
    total = ct.zeros((TM, 1), ct.float32)
    mixed = ct.zeros((TM, D), ct.float32)
    # key tiles: first to low are cut by the window's far edge, low to high seen by all rows, high to last by the diagonal
    first = ct.maximum(start - window + 1, 0) // TN
    high = (start + 1) // TN
    low = ct.minimum(ct.cdiv(ct.maximum(start + TM - window, 0), TN), high)
    last = ct.cdiv(ct.minimum(start + TM, k.shape[2]), TN)
    # two tiles each time round, since each load has one buffer: the second's arrive while the first is worked on
    for j in range(first, last, 2):
        top, total, mixed = attend(
            j, (j < low) | (j >= high), (top, total, mixed), query, rows, k, v,
            batch, group, scale, coarse, window, TM, TN, D,
        )  # fmt: skip
        if j + 1 < last:
            top, total, mixed = attend(
                j + 1, (j + 1 < low) | (j + 1 >= high), (top, total, mixed), query, rows, k, v,
                batch, group, scale, coarse, window, TM, TN, D,
            )  # fmt: skip
    result = mixed * ct.truediv(1.0, total, rounding_mode=APPROX)
    ct.store(out, (batch, head, step, 0), result.astype(out.dtype).reshape((1, 1, TM, D)))


def window_attention(q, k, v, window):
    """q (B, H, S, D), k, v (B, G, S, D) of one dtype, H a multiple of G -> out (B, H, S, D); D is a power of two."""
    batch, heads, length, width = q.shape
    out = torch.empty_like(q)
    grid = (heads, batch, ct.cdiv(length, TILE_M))
    each = heads // k.shape[1]
    scale = math.log2(math.e) / math.sqrt(width)
    coarse = 2.0 ** math.ceil(math.log2(scale))
    arguments = (q, k, v, out, scale, coarse, window, each, TILE_M, TILE_N, width)
    ct.launch(torch.cuda.current_stream(), grid, window_attention_kernel, arguments)
    return out
