"""Tile loads whose undetermined padding reaches a result."""

import cuda.tile as ct
import torch

from tests.defects import clean, entry

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def row_sum_kernel(x, out, T: Size):
    row = ct.bid(0)
    total = ct.zeros((1, T), ct.float32)
    for j in range(ct.num_tiles(x, axis=1, shape=(1, T))):
        total += ct.load(x, index=(row, j), shape=(1, T))  # DEFECT
    ct.store(out, index=(row,), tile=ct.sum(total, axis=1))


@entry("undetermined_padding")
def row_sum():
    """The ragged last tile of each row is summed with its padding."""
    x = torch.randn(3, 50, device="cuda")
    out = torch.empty(3, device="cuda")
    ct.launch(torch.cuda.current_stream(), (3,), row_sum_kernel, (x, out, 16))
    return out


@ct.kernel
def quantize_kernel(x, out, scales, T: Size):
    row = ct.bid(0)
    a = ct.load(x, index=(row, 0), shape=(1, T)).astype(ct.float32)  # DEFECT
    largest = ct.max(ct.abs(a), axis=1, keepdims=True)
    scale = ct.maximum(largest, 1e-6) / 127.0
    ct.store(out, index=(row, 0), tile=(a / scale).astype(ct.int8))
    ct.store(scales, index=(row, 0), tile=scale)


@entry("undetermined_padding")
def quantize_rows():
    """A row's largest magnitude, which scales it, is taken over the padding too."""
    x = torch.randn(4, 24, device="cuda", dtype=torch.float16)
    out = torch.empty(4, 24, device="cuda", dtype=torch.int8)
    scales = torch.empty(4, 1, device="cuda")
    ct.launch(torch.cuda.current_stream(), (4,), quantize_kernel, (x, out, scales, 32))
    return out, scales


@ct.kernel
def ragged_depth_kernel(a, b, out, M: Size, N: Size, K: Size):
    i, j = ct.bid(0), ct.bid(1)
    total = ct.zeros((M, N), ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, index=(i, k), shape=(M, K))  # DEFECT
        right = ct.load(b, index=(k, j), shape=(K, N))  # DEFECT
        total = ct.mma(left, right, total)
    ct.store(out, index=(i, j), tile=total.astype(out.dtype))


@entry("undetermined_padding")
def ragged_depth():
    """A matrix product whose depth is no multiple of the tile."""
    a = torch.randn(16, 40, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(40, 16, device="cuda", dtype=torch.bfloat16)
    out = torch.empty(16, 16, device="cuda", dtype=torch.bfloat16)
    ct.launch(torch.cuda.current_stream(), (1, 1), ragged_depth_kernel, (a, b, out, 16, 16, 16))
    return out


@ct.kernel
def one_side_kernel(a, b, out, M: Size, N: Size, K: Size):
    j = ct.bid(0)
    total = ct.zeros((M, N), ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, index=(0, k), shape=(M, K), padding_mode=ZERO)
        right = ct.load(b, index=(j, k), shape=(N, K))  # DEFECT
        total = ct.mma(left, ct.transpose(right), total)
    ct.store(out, index=(0, j), tile=total)


@entry("undetermined_padding")
def one_side_padded():
    """Only one operand is padded with zeros: zero times what lies there may be NaN."""
    a, b = torch.randn(16, 24, device="cuda"), torch.randn(32, 24, device="cuda")
    out = torch.empty(16, 32, device="cuda")
    ct.launch(torch.cuda.current_stream(), (2,), one_side_kernel, (a, b, out, 16, 16, 16))
    return out


@ct.kernel
def softmax_kernel(x, out, T: Size):
    row = ct.bid(0)
    tiles = ct.num_tiles(x, axis=1, shape=(1, T))
    largest = ct.full((1, 1), -float("inf"), ct.float32)
    for j in range(tiles):
        a = ct.load(x, index=(row, j), shape=(1, T), padding_mode=ct.PaddingMode.NEG_INF)
        largest = ct.maximum(largest, ct.max(a, axis=1, keepdims=True))
    total = ct.zeros((1, 1), ct.float32)
    for j in range(tiles):
        a = ct.load(x, index=(row, j), shape=(1, T))  # DEFECT
        total += ct.sum(ct.exp(a - largest), axis=1, keepdims=True)
    for j in range(tiles):
        a = ct.load(x, index=(row, j), shape=(1, T))
        ct.store(out, index=(row, j), tile=ct.exp(a - largest) / total)


@entry("undetermined_padding")
def softmax_denominator():
    """Of a softmax in three passes the second forgets the padding; the third may."""
    x = torch.randn(2, 40, device="cuda")
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (2,), softmax_kernel, (x, out, 16))
    return out


@ct.kernel
def group_norm_kernel(x, weight, bias, out, n, T: Size):
    group = ct.bid(0)
    a = ct.load(x, index=(group, 0), shape=(1, T), padding_mode=ZERO)
    mean = ct.sum(a) / n
    again = x.tiled_view((1, T)).load((group, 0))  # DEFECT
    variance = ct.sum((again - mean) * (again - mean)) / n
    w = ct.load(weight, index=(0,), shape=(T,)).reshape((1, T))
    b = ct.load(bias, index=(0,), shape=(T,)).reshape((1, T))
    ct.store(out, index=(group, 0), tile=(a - mean) * ct.rsqrt(variance + 1e-5) * w + b)


@entry("undetermined_padding")
def norm_variance():
    """The variance is summed over a second load, made through a view without padding."""
    x = torch.randn(3, 20, device="cuda")
    weight, bias = torch.ones(20, device="cuda"), torch.zeros(20, device="cuda")
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (3,), group_norm_kernel, (x, weight, bias, out, 20, 32))
    return out


@ct.kernel
def suffix_sum_kernel(x, out, T: Size):
    row = ct.bid(0)
    a = ct.load(x, index=(row, 0), shape=(1, T))  # DEFECT
    ct.store(out, index=(row, 0), tile=ct.cumsum(a, axis=1, reverse=True))


@entry("undetermined_padding")
def suffix_sum():
    """A scan from the right starts in the padding."""
    x = torch.randn(2, 27, device="cuda")
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (2,), suffix_sum_kernel, (x, out, 32))
    return out


@ct.kernel
def argmax_kernel(logits, token, T: Size):
    row = ct.bid(0)
    a = ct.load(logits, index=(row, 0), shape=(1, T))  # DEFECT
    ct.store(token, index=(row,), tile=ct.argmax(a, axis=1))


@entry("undetermined_padding")
def greedy_token():
    """The largest logit may lie past the vocabulary."""
    logits = -torch.rand(4, 100, device="cuda") - 1.0
    token = torch.empty(4, device="cuda", dtype=torch.int32)
    ct.launch(torch.cuda.current_stream(), (4,), argmax_kernel, (logits, token, 128))
    return token


@ct.kernel
def masked_product_kernel(x, y, out, n, T: Size):
    i = ct.bid(0)
    inside = (i * T + ct.arange(T, dtype=ct.int32) < n).astype(ct.float32)
    a = ct.load(x, index=(i,), shape=(T,))  # DEFECT
    b = ct.load(y, index=(i,), shape=(T,))  # DEFECT
    ct.atomic_add(out, 0, ct.sum(a * b * inside))


@entry("undetermined_padding")
def masked_by_a_product():
    """A dot product multiplies the tail by zero, which keeps a NaN."""
    x, y = torch.randn(41, device="cuda"), torch.randn(41, device="cuda")
    out = torch.zeros(1, device="cuda")
    ct.launch(torch.cuda.current_stream(), (3,), masked_product_kernel, (x, y, out, 41, 16))
    return out


@ct.kernel
def histogram_kernel(x, counts, T: Size):
    i = ct.bid(0)
    bins = ct.load(x, index=(i,), shape=(T,))  # DEFECT
    ct.atomic_add(counts, bins, 1)


@entry("undetermined_padding")
def ragged_histogram():
    """The padding of the last tile is counted in whatever bins it names."""
    x = torch.randint(0, 6, (50,), device="cuda", dtype=torch.int32)
    counts = torch.zeros(6, device="cuda", dtype=torch.int32)
    ct.launch(torch.cuda.current_stream(), (4,), histogram_kernel, (x, counts, 16))
    return counts


@ct.kernel
def pad_rows_kernel(x, out, R: Size, T: Size):
    i = ct.bid(0)
    ct.store(out, index=(i, 0), tile=ct.load(x, index=(i, 0), shape=(R, T)))  # DEFECT


@entry("undetermined_padding")
def pad_rows():
    """A copy into a wider buffer is meant to fill its new columns with zeros."""
    x = torch.randn(8, 20, device="cuda")
    out = torch.empty(8, 32, device="cuda")
    ct.launch(torch.cuda.current_stream(), (2,), pad_rows_kernel, (x, out, 4, 32))
    return out


@ct.kernel
def pooled_rows_kernel(table, rows, out, T: Size, D: Size):
    bag = ct.bid(0)
    places = ct.gather(rows, (bag, ct.arange(T, dtype=ct.int32)), padding_value=-1)
    tile = ct.load_advanced_indexing(table, (places, ct.Slice(0, D)))  # DEFECT
    ct.store(out, index=(bag, 0), tile=ct.sum(tile, axis=0, keepdims=True))


@entry("undetermined_padding")
def pooled_rows():
    """Absent rows of an embedding bag are marked by -1, and summed as they come."""
    table = torch.randn(12, 16, device="cuda")
    rows = torch.tensor([[3, 1, 11, -1], [0, -1, -1, -1]], device="cuda", dtype=torch.int32)
    out = torch.empty(2, 16, device="cuda")
    ct.launch(torch.cuda.current_stream(), (2,), pooled_rows_kernel, (table, rows, out, 4, 16))
    return out


@ct.kernel
def selected_sum_kernel(x, out, n, T: Size):
    row = ct.bid(0)
    a = ct.load(x, index=(row, 0), shape=(1, T))
    inside = ct.arange(T, dtype=ct.int32) < n
    ct.store(out, index=(row,), tile=ct.sum(ct.where(inside[None, :], a * a, 0.0), axis=1))


@clean
def selected_before_the_sum():
    """The padding is replaced before the sum."""
    x = torch.randn(3, 20, device="cuda")
    out = torch.empty(3, device="cuda")
    ct.launch(torch.cuda.current_stream(), (3,), selected_sum_kernel, (x, out, 20, 32))
    return out


@ct.kernel
def clipped_kernel(a, b, out, M: Size, N: Size, K: Size):
    i, j = ct.bid(0), ct.bid(1)
    total = ct.zeros((M, N), ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        total = ct.mma(ct.load(a, (i, k), (M, K)), ct.load(b, (k, j), (K, N)), total)
    ct.store(out, index=(i, j), tile=total)


@clean
def padding_in_clipped_rows():
    """Ragged rows and columns of a product: their padding lies in what the store clips; the depth is even."""
    a, b = torch.randn(20, 32, device="cuda"), torch.randn(32, 24, device="cuda")
    out = torch.empty(20, 24, device="cuda")
    ct.launch(torch.cuda.current_stream(), (2, 2), clipped_kernel, (a, b, out, 16, 16, 16))
    return out


@ct.kernel
def prefix_sum_kernel(x, out, T: Size):
    row = ct.bid(0)
    carry = ct.zeros((1, 1), ct.float32)
    for j in range(ct.num_tiles(x, axis=1, shape=(1, T))):
        a = ct.load(x, index=(row, j), shape=(1, T))
        ct.store(out, index=(row, j), tile=ct.cumsum(a, axis=1) + carry)
        carry += ct.sum(a, axis=1, keepdims=True)


@clean
def prefix_sum_with_a_tail():
    """A scan from the left reaches the padding last, and the carry that holds it is never used."""
    x = torch.randn(2, 27, device="cuda")
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (2,), prefix_sum_kernel, (x, out, 16))
    return out
