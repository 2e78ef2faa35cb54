"""Outputs that are not written whole, and problems that are not visited whole."""

import cuda.tile as ct
import torch

from tests.defects import clean, entry

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def gelu_kernel(x, out, T: Size):
    i = ct.bid(0)
    a = ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO)
    ct.store(out, index=(i,), tile=a / (1.0 + ct.exp(-1.702 * a)))  # DEFECT


@entry("unvisited")
def floor_of_the_grid():
    """The grid is rounded down."""
    x = torch.randn(100, device="cuda")
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (x.numel() // 32,), gelu_kernel, (x, out, 32))
    return out


@ct.kernel
def whole_tiles_kernel(x, out, n, T: Size):
    i = ct.bid(0)
    if i * T + T <= n:
        a = ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO)
        ct.store(out, index=(i,), tile=a * a)  # DEFECT


@entry("unvisited")
def guarded_tail():
    """A guard lets only whole tiles through."""
    x = torch.randn(70, device="cuda")
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (5,), whole_tiles_kernel, (x, out, 70, 16))
    return out


@ct.kernel
def equal_shares_kernel(x, out, T: Size):
    tiles = ct.num_tiles(x, axis=0, shape=(T,))
    share = tiles // ct.num_blocks(0)
    total = ct.zeros((T,), ct.float32)
    for i in range(ct.bid(0) * share, (ct.bid(0) + 1) * share):
        total += ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO)
    ct.store(out, index=(ct.bid(0),), tile=ct.sum(total, keepdims=True))  # DEFECT


@entry("unvisited")
def equal_shares():
    """Tiles are dealt out in equal shares, and what is left over is summed by no block."""
    x = torch.randn(176, device="cuda")
    out = torch.empty(4, device="cuda")
    ct.launch(torch.cuda.current_stream(), (4,), equal_shares_kernel, (x, out, 16))
    return out.sum()


@ct.kernel
def causal_scores_kernel(q, k, scores, T: Size, D: Size):
    i, j = ct.bid(0), ct.bid(1)
    if j > i:
        return
    rows = ct.load(q, index=(i, 0), shape=(T, D))
    columns = ct.load(k, index=(j, 0), shape=(T, D))
    tile = ct.mma(rows, ct.transpose(columns), ct.zeros((T, T), ct.float32))
    place = ct.arange(T, dtype=ct.int32)
    seen = (i * T + place)[:, None] >= (j * T + place)[None, :]
    ct.store(scores, index=(i, j), tile=ct.where(seen, tile, -float("inf")))  # DEFECT


@entry("unvisited")
def masked_blocks():
    """Blocks right of the diagonal leave before they write the mask."""
    q, k = torch.randn(32, 16, device="cuda"), torch.randn(32, 16, device="cuda")
    scores = torch.empty(32, 32, device="cuda")
    ct.launch(torch.cuda.current_stream(), (2, 2), causal_scores_kernel, (q, k, scores, 16, 16))
    return scores


@ct.kernel
def copy_rows_kernel(x, out, first, T: Size):
    row = first + ct.bid(0)
    ct.store(out, index=(row, 0), tile=ct.load(x, index=(row, 0), shape=(1, T), padding_mode=ZERO))


@clean
def two_launches():
    """Two launches write one half each, into a view that leaves out the padding of its buffer."""
    x = torch.randn(7, 20, device="cuda")
    out = torch.empty(7, 32, device="cuda")[:, :20]
    for first, rows in ((0, 3), (3, 4)):
        ct.launch(torch.cuda.current_stream(), (rows,), copy_rows_kernel, (x, out, first, 32))
    return out
