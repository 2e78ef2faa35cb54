"""Sliding-window attention in cuTile, tuned for sm_90: persistent blocks, one software-pipelined loop per job.

A tile of queries holds PACK heads that share their keys times ROWS positions: the narrower span of positions meets
fewer tiles of keys that lie partly outside the window.
"""

import math

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
TILE_M, TILE_N, PACK_MAX, BLOCKS = 128, 64, 4, 132
FLOOR, HIDDEN = -3e38, -math.inf  # a row that has seen nothing yet weighs hidden scores 0, not NaN


@ct.kernel(num_worker_warps=8)
def window_attention_kernel(
    q, k, v, out, scale, window, packs, steps, EACH: Size, PACK: Size, ROWS: Size, TN: Size, D: Size
):
    TM = PACK * ROWS
    block, blocks = ct.bid(0), ct.num_blocks(0)
    jobs = packs * steps
    full = jobs // blocks
    # The last, partial round goes to those that the to and fro of the rounds reaches first.
    place = block + (full % 2) * (blocks - 1 - 2 * block)
    rounds = full + ct.minimum(ct.maximum(jobs - full * blocks - place, 0), 1)
    per_batch = q.shape[1] // PACK
    for turn in range(rounds):
        job = turn * blocks + block + (turn % 2) * (blocks - 1 - 2 * block)
        step = steps - 1 - job // packs
        which = job % packs
        batch = which // per_batch
        pack = which % per_batch
        group = pack * PACK // EACH
        first = step * ROWS
        query = ct.load(q, (batch, pack, step, 0), (1, PACK, ROWS, D), padding_mode=ZERO).reshape((TM, D))
        rows = (first + (ct.arange(TM, dtype=ct.int32) & (ROWS - 1)))[:, None]
        top = ct.full((TM, 1), FLOOR, ct.float32)
        total = ct.zeros((TM, 1), ct.float32)
        mixed = ct.zeros((TM, D), ct.float32)
        begin = ct.maximum(first - window + 1, 0) // TN
        end = ct.minimum(ct.cdiv(first + ROWS, TN), ct.cdiv(k.shape[2], TN))
        for j in range(begin, end):
            keys = ct.load(k, (batch, group, j, 0), (1, 1, TN, D), padding_mode=ZERO).reshape((TN, D))
            score = ct.mma(query, keys.transpose(), ct.zeros((TM, TN), ct.float32))
            columns = (j * TN + ct.arange(TN, dtype=ct.int32))[None, :]
            seen = ct.bitcast(rows - columns, ct.uint32) < ct.bitcast(window, ct.uint32)
            score = ct.where(seen, score, HIDDEN)
            higher = ct.maximum(top, ct.max(score, axis=1, keepdims=True))
            # Not score * scale - higher * scale: as one FMA it is off by a rounding of the product, much for large scores.
            weights = ct.exp2((score - higher) * scale, flush_to_zero=True)
            fade = ct.exp2((top - higher) * scale, flush_to_zero=True)
            total = total * fade + ct.sum(weights, axis=1, keepdims=True)
            values = ct.load(v, (batch, group, j, 0), (1, 1, TN, D), padding_mode=ZERO).reshape((TN, D))
            mixed = ct.mma(weights.astype(v.dtype), values, mixed * fade)
            top = higher
        result = (mixed * (1.0 / total)).astype(out.dtype).reshape((1, PACK, ROWS, D))
        ct.store(out, (batch, pack, step, 0), result)


def window_attention(q, k, v, window):
    """q (B, H, S, D), k, v (B, G, S, D) of one dtype, H a multiple of G -> out (B, H, S, D); D is a power of two."""
    batch, heads, length, width = q.shape
    out = torch.empty_like(q)
    each = heads // k.shape[1]
    pack = math.gcd(each, PACK_MAX)
    rows = TILE_M // pack
    packs, steps = batch * heads // pack, -(-length // rows)
    grid = (min(BLOCKS, packs * steps), 1, 1)
    scale = math.log2(math.e) / math.sqrt(width)
    arguments = (q, k, v, out, scale, min(window, length), packs, steps, each, pack, rows, TILE_N, width)
    ct.launch(torch.cuda.current_stream(), grid, window_attention_kernel, arguments)
    return out
