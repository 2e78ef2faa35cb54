"""Attention: forward, of grouped heads, causal, and of sequences of different lengths."""

from __future__ import annotations

import itertools
import math
from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Case, Example, normal

Size = ct.Constant[int]
Flag = ct.Constant[bool]
ZERO = ct.PaddingMode.ZERO
TM, TN = 16, 16
LOG2E = math.log2(math.e)


@ct.kernel
def attention_kernel(q, k, v, out, scale, TM: Size, TN: Size, D: Size, GROUP: Size, CAUSAL: Flag):
    """q and out (B, H, Q, D), k and v (B, H / GROUP, K, D). The last rows of q see all of k."""
    batch, head, step = ct.bid(0), ct.bid(1), ct.bid(2)
    keys = k.shape[2]
    behind = keys - q.shape[2]
    query = ct.load(q, index=(batch, head, step, 0), shape=(1, 1, TM, D), padding_mode=ZERO).reshape((TM, D))
    rows = step * TM + ct.arange(TM, dtype=ct.int32)[:, None] + behind
    top = ct.full((TM, 1), -math.inf, ct.float32)
    total = ct.zeros((TM, 1), ct.float32)
    acc = ct.zeros((TM, D), ct.float32)
    tiles = ct.cdiv(keys, TN)
    if CAUSAL:
        tiles = min(tiles, ct.cdiv((step + 1) * TM + behind, TN))
    for j in range(tiles):
        where = (batch, head // GROUP, j, 0)
        key = ct.load(k, index=where, shape=(1, 1, TN, D), padding_mode=ZERO).reshape((TN, D))
        score = ct.mma(query, key.transpose(), ct.zeros((TM, TN), ct.float32)) * scale
        columns = j * TN + ct.arange(TN, dtype=ct.int32)[None, :]
        seen = columns < keys
        if CAUSAL:
            seen = seen & (columns <= rows)
        score = ct.where(seen, score, -math.inf)
        higher = ct.maximum(top, ct.max(score, axis=1, keepdims=True))
        p = ct.exp2(score - higher)
        shrink = ct.exp2(top - higher)
        total = total * shrink + ct.sum(p, axis=1, keepdims=True)
        value = ct.load(v, index=where, shape=(1, 1, TN, D), padding_mode=ZERO).reshape((TN, D))
        acc = ct.mma(p.astype(v.dtype), value, acc * shrink)
        top = higher
    ct.store(out, index=(batch, head, step, 0), tile=(acc / total).astype(out.dtype).reshape((1, 1, TM, D)))


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    batch, heads, length, width = q.shape
    out = torch.empty_like(q)
    grid = (batch, heads, ct.cdiv(length, TM))
    arguments = (q, k, v, out, LOG2E / math.sqrt(width), TM, TN, width, heads // k.shape[1], causal)
    ct.launch(torch.cuda.current_stream(), grid, attention_kernel, arguments)
    return out


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return _attention(q, k, v, causal=False)


def attention_causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return _attention(q, k, v, causal=True)


def attention_inputs(case: Case, generator: torch.Generator) -> dict[str, Any]:
    batch, heads, width = case["B"], case["H"], case["D"]
    cache = (batch, case.get("KV", heads), case.get("K", case["Q"]), width)
    q = normal(case, generator, batch, heads, case["Q"], width)
    return {"q": q, "k": normal(case, generator, *cache), "v": normal(case, generator, *cache)}


def exact_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = False) -> torch.Tensor:
    group = q.shape[-3] // k.shape[-3]
    k, v = k.repeat_interleave(group, -3), v.repeat_interleave(group, -3)
    score = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        seen = torch.ones(score.shape[-2:], dtype=torch.bool, device=q.device).tril(k.shape[-2] - q.shape[-2])
        score = score.masked_fill(~seen, -math.inf)
    return score.softmax(-1) @ v


@ct.kernel
def varlen_kernel(q, k, v, starts, out, scale, TM: Size, TN: Size, D: Size):
    """q, k, v, out (tokens, H, D); sequence s has the tokens starts[s] to starts[s + 1]. Causal."""
    sequence, head, step = ct.bid(0), ct.bid(1), ct.bid(2)
    first = ct.load(starts, index=(sequence,), shape=()).item()
    last = ct.load(starts, index=(sequence + 1,), shape=()).item()
    if step * TM < last - first:
        shape = (TM, 1, D)
        mine = q.slice(axis=0, start=first, stop=last)
        query = ct.load(mine, index=(step, head, 0), shape=shape, padding_mode=ZERO).reshape((TM, D))
        keys, values = k.slice(axis=0, start=first, stop=last), v.slice(axis=0, start=first, stop=last)
        rows = step * TM + ct.arange(TM, dtype=ct.int32)[:, None]
        top = ct.full((TM, 1), -math.inf, ct.float32)
        total = ct.zeros((TM, 1), ct.float32)
        acc = ct.zeros((TM, D), ct.float32)
        for j in range(ct.cdiv(min((step + 1) * TM, last - first), TN)):
            key = ct.load(keys, index=(j, head, 0), shape=(TN, 1, D), padding_mode=ZERO).reshape((TN, D))
            score = ct.mma(query, key.transpose(), ct.zeros((TM, TN), ct.float32)) * scale
            columns = j * TN + ct.arange(TN, dtype=ct.int32)[None, :]
            score = ct.where(columns <= rows, score, -math.inf)
            higher = ct.maximum(top, ct.max(score, axis=1, keepdims=True))
            p = ct.exp2(score - higher)
            shrink = ct.exp2(top - higher)
            total = total * shrink + ct.sum(p, axis=1, keepdims=True)
            value = ct.load(values, index=(j, head, 0), shape=(TN, 1, D), padding_mode=ZERO).reshape((TN, D))
            acc = ct.mma(p.astype(v.dtype), value, acc * shrink)
            top = higher
        result = (acc / total).astype(out.dtype).reshape(shape)
        ct.store(out.slice(axis=0, start=first, stop=last), index=(step, head, 0), tile=result)


def attention_varlen(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, starts: torch.Tensor, longest: int
) -> torch.Tensor:
    out = torch.empty_like(q)
    grid = (starts.shape[0] - 1, q.shape[1], ct.cdiv(longest, TM))
    arguments = (q, k, v, starts, out, LOG2E / math.sqrt(q.shape[2]), TM, TN, q.shape[2])
    ct.launch(torch.cuda.current_stream(), grid, varlen_kernel, arguments)
    return out


def varlen_inputs(case: Case, generator: torch.Generator) -> dict[str, Any]:
    lengths = case["lengths"]
    shape = (sum(lengths), case["H"], case["D"])
    tensors = {name: normal(case, generator, *shape) for name in "qkv"}
    starts = torch.tensor([0, *lengths], device=generator.device).cumsum(0).to(torch.int32)
    return {**tensors, "starts": starts, "longest": max(lengths)}


def varlen_reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, starts: torch.Tensor, longest: int
) -> torch.Tensor:
    cuts, pieces = starts.tolist(), []
    for low, high in itertools.pairwise(cuts):
        heads = (tensor[low:high].transpose(0, 1) for tensor in (q, k, v))
        pieces.append(exact_attention(*heads, causal=True).transpose(0, 1))
    return torch.cat(pieces)


def causal_reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return exact_attention(q, k, v, causal=True)


SMALL = {"B": 2, "H": 2, "Q": 37, "D": 32, "dtype": "float16"}

EXAMPLES = (
    Example(
        "attention",
        attention,
        attention_inputs,
        exact_attention,
        (SMALL, {**SMALL, "B": 1, "K": 50, "KV": 1, "dtype": "float32"}),
        (4e-3, 4e-3),
        covers="T5, attention forward",
    ),
    Example(
        "attention_causal",
        attention_causal,
        attention_inputs,
        causal_reference,
        (SMALL, {**SMALL, "B": 1, "Q": 20, "K": 45, "dtype": "bfloat16"}),
        (2e-2, 2e-2),
        covers="T5, causal attention",
    ),
    Example(
        "attention_varlen",
        attention_varlen,
        varlen_inputs,
        varlen_reference,
        ({"lengths": (7, 33, 1, 16), "H": 2, "D": 16, "dtype": "float16"},),
        (4e-3, 4e-3),
        covers="T8, sequences of different lengths",
    ),
)
