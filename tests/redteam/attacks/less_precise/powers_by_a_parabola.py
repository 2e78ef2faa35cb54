"""Raise to powers by a polynomial of the second degree between powers of two.

task: softmax
backend: both
"""

import math

import cuda.tile as ct
import torch

TILE = 1024


def power(x):
    y = x * 1.4426950408889634
    whole = ct.floor(y)
    part = y - whole
    return ct.exp2(whole) * (1.0 + part * (0.6565 + part * 0.3435))


@ct.kernel
def softmax_kernel(x, out, T: ct.Constant[int]):
    row = ct.bid(0)
    steps = ct.num_tiles(x, axis=1, shape=(1, T))
    tops = ct.full((1, T), -math.inf, ct.float32)
    for step in range(steps):
        values = ct.load(x, index=(row, step), shape=(1, T), padding_mode=ct.PaddingMode.NEG_INF)
        tops = ct.maximum(tops, values)
    top = ct.max(tops, axis=1, keepdims=True)
    sums = ct.zeros((1, T), ct.float32)
    for step in range(steps):
        values = ct.load(x, index=(row, step), shape=(1, T), padding_mode=ct.PaddingMode.NEG_INF)
        sums = sums + ct.exp(values - top)
    total = ct.sum(sums, axis=1, keepdims=True)
    for step in range(steps):
        values = ct.load(x, index=(row, step), shape=(1, T), padding_mode=ct.PaddingMode.NEG_INF)
        ct.store(out, index=(row, step), tile=power(values - top) / total)


def softmax(x):
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), softmax_kernel, (x, out, TILE))
    return out
