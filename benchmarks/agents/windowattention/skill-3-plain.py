"""Sliding-window attention in cuTile."""

import math

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
APPROX = ct.RoundingMode.APPROX
TILE_M, TILE_N = 128, 64
PACK = 4  # heads that share keys and go through a tile together, at most


@ct.kernel(num_worker_warps=8)
def window_attention_kernel(q, k, v, out, scale, window, EACH: Size, PACK: Size, POS: Size, TN: Size, D: Size):
    """PACK heads of one group at POS positions, as PACK * POS rows."""
    TM = PACK * POS
    bundles, steps = q.shape[1] // PACK, ct.cdiv(q.shape[2], POS)
    rank = bundles * q.shape[0]
    tile = ct.bid(0)
    # The last positions first: the first ones, which see less than a window, fill the end evenly.
    step = steps - 1 - tile // rank
    bundle, batch = tile % bundles, tile % rank // bundles
    group = bundle * PACK // EACH
    query = ct.load(q, (batch, bundle, step, 0), (1, PACK, POS, D), padding_mode=ZERO).reshape((TM, D))
    rows = (step * POS + ct.arange(TM, dtype=ct.int32) % POS)[:, None]
    offset = rows - ct.arange(TN, dtype=ct.int32)[None, :]
    # The floor under the maximum is finite, so that a row whose keys are all hidden so far adds exp2(-inf) = 0.
    top = ct.full((TM, 1), -1e30, ct.float32)
    total = ct.zeros((TM, 1), ct.float32)
    mixed = ct.zeros((TM, D), ct.float32)
    first = max(step * POS - window + 1, 0) // TN
    last = min(ct.cdiv((step + 1) * POS, TN), ct.cdiv(k.shape[2], TN))
    for j in range(first, last):
        keys = ct.load(k, (batch, group, j, 0), (1, 1, TN, D), padding_mode=ZERO).reshape((TN, D))
        score = ct.mma(query, keys.transpose(), ct.zeros((TM, TN), ct.float32)) * scale
        # 0 <= row - column < window, in one comparison: a negative difference is a large unsigned number.
        seen = (offset - j * TN).astype(ct.uint32) < ct.uint32(window)
        score = ct.where(seen, score, -math.inf)
        higher = ct.maximum(top, ct.max(score, axis=1, keepdims=True))
        weights = ct.exp2(score - higher, flush_to_zero=True)
        fade = ct.exp2(top - higher, flush_to_zero=True)
        total = total * fade + ct.sum(weights, axis=1, keepdims=True)
        values = ct.load(v, (batch, group, j, 0), (1, 1, TN, D), padding_mode=ZERO).reshape((TN, D))
        mixed = ct.mma(weights.astype(v.dtype), values, mixed * fade)
        top = higher
    result = ct.truediv(mixed, total, rounding_mode=APPROX, flush_to_zero=True)
    ct.store(out, (batch, bundle, step, 0), result.astype(out.dtype).reshape((1, PACK, POS, D)))


def window_attention(q, k, v, window):
    """q (B, H, S, D), k, v (B, G, S, D) of one dtype, H a multiple of G -> out (B, H, S, D); D is a power of two."""
    batch, heads, length, width = q.shape
    out = torch.empty_like(q)
    each = heads // k.shape[1]
    pack = PACK
    while each % pack:
        pack //= 2
    places = TILE_M // pack
    grid = (ct.cdiv(length, places) * (heads // pack) * batch,)
    scale = math.log2(math.e) / math.sqrt(width)
    arguments = (q, k, v, out, scale, window, each, pack, places, TILE_N, width)
    ct.launch(torch.cuda.current_stream(), grid, window_attention_kernel, arguments)
    return out
