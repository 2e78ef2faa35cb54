"""Attention forward, (B, H, S, D) in float16: a cuTile kernel with every choice as an argument, and torch's two."""

import functools
import math

import cuda.tile as ct
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

Size, Flag = ct.Constant[int], ct.Constant[bool]
APPROX = ct.RoundingMode.APPROX
LOG2E = math.log2(math.e)
EXACT_EXP, APPROX_EXP, EXP2, FLUSHED_EXP2 = range(4)
"""How weights are computed: `exp`, `exp` rounded approximately, `exp2`, or `exp2` with subnormals flushed to zero."""


@ct.function
def power(x, FAST: Size):
    if FAST == 0:
        return ct.exp(x)
    if FAST == 1:
        return ct.exp(x, rounding_mode=APPROX)
    if FAST == 2:
        return ct.exp2(x)
    return ct.exp2(x, flush_to_zero=True)


@ct.function
def step(query, k, v, batch, head, j, rows, scale, top, total, mixed, MASK: Flag, TN: Size, D: Size, FAST: Size):
    """One tile of keys: the running maximum, sum and output after it."""
    keys = ct.load(k, index=(batch, head, j, 0), shape=(1, 1, TN, D)).reshape((TN, D))
    score = ct.mma(query, keys.transpose(), ct.zeros((query.shape[0], TN), ct.float32)) * scale
    if MASK:
        columns = j * TN + ct.arange(TN, dtype=ct.int32)[None, :]
        score = ct.where(columns <= rows, score, -math.inf)
    higher = ct.maximum(top, ct.max(score, axis=1, keepdims=True))
    weights = power(score - higher, FAST)
    fade = power(top - higher, FAST)
    total = total * fade + ct.sum(weights, axis=1, keepdims=True)
    values = ct.load(v, index=(batch, head, j, 0), shape=(1, 1, TN, D)).reshape((TN, D))
    mixed = ct.mma(weights.astype(v.dtype), values, mixed * fade)
    return higher, total, mixed


@ct.kernel
def attention_kernel(q, k, v, out, scale, TM: Size, TN: Size, D: Size, CAUSAL: Flag, SPLIT: Flag, FAST: Size):
    """SPLIT: of a causal block, tiles before the diagonal go through a loop of their own, without a mask."""
    head, batch = ct.bid(1), ct.bid(2)
    block = ct.num_blocks(0) - 1 - ct.bid(0)  # the longest first, if causal
    query = ct.load(q, index=(batch, head, block, 0), shape=(1, 1, TM, D)).reshape((TM, D))
    rows = block * TM + ct.arange(TM, dtype=ct.int32)[:, None]
    top = ct.full((TM, 1), -math.inf, ct.float32)
    total = ct.zeros((TM, 1), ct.float32)
    mixed = ct.zeros((TM, D), ct.float32)
    tiles = ct.cdiv(k.shape[2], TN)
    if CAUSAL:
        tiles = min(tiles, ct.cdiv((block + 1) * TM, TN))
        first = block * TM // TN if SPLIT else 0
        if SPLIT:
            for j in range(first):
                top, total, mixed = step(
                    query, k, v, batch, head, j, rows, scale, top, total, mixed, False, TN, D, FAST
                )
        for j in range(first, tiles):
            top, total, mixed = step(query, k, v, batch, head, j, rows, scale, top, total, mixed, True, TN, D, FAST)
    else:
        for j in range(tiles):
            top, total, mixed = step(query, k, v, batch, head, j, rows, scale, top, total, mixed, False, TN, D, FAST)
    result = ct.truediv(mixed, total, flush_to_zero=True, rounding_mode=APPROX)
    ct.store(out, index=(batch, head, block, 0), tile=result.astype(out.dtype).reshape((1, 1, TM, D)))


@functools.cache
def hinted(warps, occupancy):
    """The kernel with these hints; 0 leaves one to the compiler."""
    hints = {"num_worker_warps": warps, "occupancy": occupancy}
    return attention_kernel.replace_hints(**{name: value for name, value in hints.items() if value})


def arguments(q, k, v, out, causal, tile_m, tile_n, split, fast):
    """What the kernel takes."""
    scale = (LOG2E if fast >= EXP2 else 1.0) / math.sqrt(q.shape[3])
    return (q, k, v, out, scale, tile_m, tile_n, q.shape[3], causal, split, fast)


def grid(q, tile_m):
    """Blocks of one head beside each other, so that they share keys and values in L2."""
    return (ct.cdiv(q.shape[2], tile_m), q.shape[1], q.shape[0])


def attention(q, k, v, causal, tile_m, tile_n, warps, occupancy, split=False, fast=FLUSHED_EXP2):
    """q, k, v (B, H, S, D) of one dtype, S a multiple of both tiles, D a power of two -> out (B, H, S, D)."""
    out = torch.empty_like(q)
    taken = arguments(q, k, v, out, causal, tile_m, tile_n, split, fast)
    ct.launch(torch.cuda.current_stream(), grid(q, tile_m), hinted(warps, occupancy), taken)
    return out


def cudnn(q, k, v, causal):
    """The same by cuDNN."""
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def flash(q, k, v, causal):
    """The same by the FlashAttention-2 in torch."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
