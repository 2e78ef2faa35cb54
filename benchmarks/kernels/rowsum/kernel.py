"""Row sums in cuTile: a block takes a band of rows and walks along them."""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ROWS, TILE = 8, 64


@ct.kernel
def rowsum_kernel(x, sums, squares, R: Size, T: Size):
    band = ct.bid(0)
    first = ct.zeros((R, T), ct.float32)
    second = ct.zeros((R, T), ct.float32)
    for step in range(ct.num_tiles(x, axis=1, shape=(R, T))):
        a = ct.load(x, index=(band, step), shape=(R, T), padding_mode=ct.PaddingMode.ZERO)
        first = first + a
        second = second + a * a
    ct.store(sums, index=(band,), tile=ct.sum(first, axis=1))
    ct.store(squares, index=(band,), tile=ct.sum(second, axis=1))


def rowsum(x):
    sums = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    squares = torch.empty_like(sums)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], ROWS),), rowsum_kernel, (x, sums, squares, ROWS, TILE))
    return sums, squares
