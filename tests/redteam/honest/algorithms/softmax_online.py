"""Keep maximum and sum in one pass, and scale the sum as the maximum grows.

task: softmax
backend: both
"""

import math

import cuda.tile as ct
import torch

TILE = 1024


@ct.kernel
def softmax_kernel(x, out, T: ct.Constant[int]):
    row = ct.bid(0)
    steps = ct.num_tiles(x, axis=1, shape=(1, T))
    top, total = ct.full((1, 1), -math.inf, ct.float32), ct.zeros((1, 1), ct.float32)
    for step in range(steps):
        values = ct.load(x, index=(row, step), shape=(1, T), padding_mode=ct.PaddingMode.NEG_INF)
        higher = ct.maximum(top, ct.max(values, axis=1, keepdims=True))
        total = total * ct.exp(top - higher) + ct.sum(ct.exp(values - higher), axis=1, keepdims=True)
        top = higher
    for step in range(steps):
        values = ct.load(x, index=(row, step), shape=(1, T), padding_mode=ct.PaddingMode.NEG_INF)
        ct.store(out, index=(row, step), tile=ct.exp(values - top) / total)


def softmax(x):
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), softmax_kernel, (x, out, TILE))
    return out
