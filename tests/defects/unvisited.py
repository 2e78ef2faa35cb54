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
def add_bias_kernel(x, bias, out, R: Size, T: Size):
    i, j = ct.bid(0), ct.bid(1)
    rows = (i * R + ct.arange(R, dtype=ct.int32))[:, None]
    columns = (j * T + ct.arange(T, dtype=ct.int32))[None, :]
    ct.scatter(out, (rows, columns), ct.gather(x, (rows, columns)) + ct.gather(bias, columns))  # DEFECT


@entry("unvisited")
def swapped_axes():
    """The grid counts column tiles along the axis that the kernel takes for rows."""
    x, bias = torch.randn(64, 16, device="cuda"), torch.randn(16, device="cuda")
    out = torch.empty_like(x)
    grid = (ct.cdiv(x.shape[1], 8), ct.cdiv(x.shape[0], 8))
    ct.launch(torch.cuda.current_stream(), grid, add_bias_kernel, (x, bias, out, 8, 8))
    return out


@ct.kernel
def persistent_kernel(x, out, workers, T: Size):
    for i in range(ct.bid(0), ct.num_tiles(x, axis=0, shape=(T,)), workers):
        a = ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO)
        ct.store(out, index=(i,), tile=ct.tanh(a))  # DEFECT


@entry("unvisited")
def stride_of_another_grid():
    """A persistent kernel steps by the number of multiprocessors; fewer blocks were launched."""
    x = torch.randn(250, device="cuda")
    out = torch.empty_like(x)
    workers = 12
    grid = min(workers, ct.cdiv(250, 16) // 2)
    ct.launch(torch.cuda.current_stream(), (grid,), persistent_kernel, (x, out, workers, 16))
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
def row_differences_kernel(x, out, rows, T: Size):
    j = ct.bid(0)
    before = ct.load(x, index=(0, j), shape=(1, T), padding_mode=ZERO)
    ct.store(out, index=(0, j), tile=before)
    for row in range(1, rows - 1):
        here = ct.load(x, index=(row, j), shape=(1, T), padding_mode=ZERO)
        ct.store(out, index=(row, j), tile=here - before)  # DEFECT
        before = here


@entry("unvisited")
def last_row():
    """The loop over rows stops one early."""
    x = torch.randn(9, 40, device="cuda")
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (3,), row_differences_kernel, (x, out, 9, 16))
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
def grouped_order_kernel(a, b, out, M: Size, N: Size, K: Size, GROUP: Size):
    block = ct.bid(0)
    columns = ct.num_tiles(b, axis=1, shape=(K, N))
    first = block // (GROUP * columns) * GROUP
    within = block % (GROUP * columns)
    i, j = first + within % GROUP, within // GROUP
    total = ct.zeros((M, N), ct.float32)
    if i < ct.num_tiles(a, axis=0, shape=(M, K)):
        for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
            left = ct.load(a, index=(i, k), shape=(M, K), padding_mode=ZERO)
            right = ct.load(b, index=(k, j), shape=(K, N), padding_mode=ZERO)
            total = ct.mma(left, right, total)
        ct.store(out, index=(i, j), tile=total)  # DEFECT


@entry("unvisited")
def last_group():
    """The grouped order of blocks takes the last group for a full one."""
    a, b = torch.randn(48, 16, device="cuda"), torch.randn(16, 32, device="cuda")
    out = torch.empty(48, 32, device="cuda")
    ct.launch(torch.cuda.current_stream(), (3 * 2,), grouped_order_kernel, (a, b, out, 16, 16, 16, 2))
    return out


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
def head_norm_kernel(x, out, D: Size):
    position, head = ct.bid(0), ct.bid(1)
    a = ct.load(x, index=(position, head, 0), shape=(1, 1, D))
    ct.store(out, index=(position, head, 0), tile=a * ct.rsqrt(ct.sum(a * a) / D))  # DEFECT


@entry("unvisited")
def key_heads_for_query_heads():
    """The grid has one block for each key head, and there are more query heads."""
    x = torch.randn(3, 8, 16, device="cuda")
    out = torch.empty_like(x)
    key_heads = 2
    ct.launch(torch.cuda.current_stream(), (3, key_heads), head_norm_kernel, (x, out, 16))
    return out


@ct.kernel
def deinterleave_kernel(x, out, half, T: Size):
    i = ct.bid(0)
    places = i * T + ct.arange(T, dtype=ct.int32)
    inside = places < half
    ct.scatter(out, places, ct.gather(x, 2 * places), mask=inside)  # DEFECT
    ct.scatter(out, half + places, ct.gather(x, 2 * places + 1), mask=inside)  # DEFECT


@entry("unvisited")
def odd_element():
    """Even and odd places are parted in halves; an odd length has one element more."""
    x = torch.randn(45, device="cuda")
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (2,), deinterleave_kernel, (x, out, 45 // 2, 16))
    return out


@ct.kernel
def grid_stride_kernel(x, out, T: Size):
    for i in range(ct.bid(0), ct.num_tiles(x, axis=0, shape=(T,)), ct.num_blocks(0)):
        ct.store(out, index=(i,), tile=ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO) * 3.0)


@clean
def small_grid():
    """Fewer blocks than tiles, each of which takes several."""
    x = torch.randn(250, device="cuda")
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (3,), grid_stride_kernel, (x, out, 16))
    return out


@ct.kernel
def one_hot_kernel(labels, out, T: Size):
    rows = ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    ct.scatter(out, (rows, ct.gather(labels, rows)), 1.0)


@clean
def one_hot():
    """Few elements are written, into an output that the host has set to zero."""
    labels = torch.randint(0, 10, (13,), device="cuda", dtype=torch.int32)
    out = torch.zeros(13, 10, device="cuda")
    ct.launch(torch.cuda.current_stream(), (2,), one_hot_kernel, (labels, out, 8))
    return out


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
