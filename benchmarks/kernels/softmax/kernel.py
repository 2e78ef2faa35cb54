"""Softmax in cuTile: two passes over a row in tiles, the sum kept up to date with the largest value so far."""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
LOWEST = -3.0e38
TILE = 64


@ct.kernel
def softmax_kernel(x, out, T: Size):
    row = ct.bid(0)
    tiles = ct.num_tiles(x, axis=1, shape=(1, T))
    top = ct.full((1, 1), LOWEST, ct.float32)
    total = ct.zeros((1, 1), ct.float32)
    for step in range(tiles):
        a = ct.load(x, index=(row, step), shape=(1, T), padding_mode=ct.PaddingMode.NEG_INF)
        higher = ct.maximum(top, ct.max(a, axis=1, keepdims=True))
        total = total * ct.exp(top - higher) + ct.sum(ct.exp(a - higher), axis=1, keepdims=True)
        top = higher
    for step in range(tiles):
        a = ct.load(x, index=(row, step), shape=(1, T), padding_mode=ct.PaddingMode.NEG_INF)
        ct.store(out, index=(row, step), tile=ct.exp(a - top) / total)


def softmax(x):
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), softmax_kernel, (x, out, TILE))
    return out
