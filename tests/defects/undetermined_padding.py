"""Tile loads whose undetermined padding reaches a result."""

import cuda.tile as ct
import torch

from tests.corpus.operations import compiled
from tests.defects import DEFECTS, Defect, clean, entry

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


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


ROWS = """
@ct.kernel
def kernel(x, out, T: ct.Constant[int]):
    row = ct.bid(0)
    a = ct.load(x, index=(row, 0), shape=(1, T))  # DEFECT
    ct.store(out, index=(row,), tile=({}).astype(out.dtype))
"""
ON_ROWS = {
    "greedy_token": "ct.argmax(a, axis=1)",
    "nearest_centroid": "ct.argmin(a, axis=1)",
    "row_maximum": "ct.max(a, axis=1)",
    "row_minimum": "ct.min(a, axis=1)",
    "quantisation_range": "ct.max(ct.abs(a), axis=1) / 127.0",
    "integer_minimum": "ct.min(a, axis=1)",
    "sum_of_negatives": "ct.sum(ct.where(a < 0.0, ct.minimum(a, 0.0), 0.0), axis=1)",
    "one_bin_of_a_histogram": "ct.sum(ct.where((a > -1.0) & (a < 0.0), 1, 0), axis=1)",
}


def on_rows(expression, whole):
    """Reduces rows of 50 elements, which a tile of 64 loads."""
    kernel = compiled(ROWS, expression)

    def run():
        x, out = torch.randn(4, 50, device="cuda"), torch.empty(4, device="cuda")
        x = torch.randint(-50, -1, (4, 50), device="cuda", dtype=torch.int32) if whole else x
        ct.launch(torch.cuda.current_stream(), (4,), kernel, (x, out, 64))
        return out

    return run


for name, expression in ON_ROWS.items():
    DEFECTS.append(Defect(name, "undetermined_padding", on_rows(expression, name == "integer_minimum")))


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
