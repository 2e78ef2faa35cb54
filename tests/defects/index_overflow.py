"""Index arithmetic that overflows its integer type. Large arrays are views of one small row."""

import cuda.tile as ct
import torch

from tests.defects import clean, entry

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


def indices(*values, dtype=torch.int32):
    return torch.tensor(values, device="cuda", dtype=dtype)


@ct.kernel
def chunk_heads_kernel(x, out, width, CHUNK: Size, T: Size):
    i = ct.bid(0)
    places = i * CHUNK + ct.arange(T, dtype=ct.int32)  # DEFECT
    ct.store(out, index=(i,), tile=ct.gather(x, (places // width, places % width), padding_value=-1.0))


@entry("index_overflow")
def chunk_starts():
    """The start of the third chunk of a large matrix, block times chunk, passes the end of int32."""
    x = torch.rand(1, 1000, device="cuda").expand(3_000_000, 1000)
    out = torch.empty(3 * 16, device="cuda")
    ct.launch(torch.cuda.current_stream(), (3,), chunk_heads_kernel, (x, out, 1000, 1_200_000_000, 16))
    return out


@ct.kernel
def ragged_starts_kernel(values, lengths, out, T: Size):
    sizes = ct.load(lengths, index=(0,), shape=(T,), padding_mode=ZERO)
    ends = ct.cumsum(sizes, axis=0)  # DEFECT
    ct.store(out, index=(0,), tile=ct.gather(values, ends.astype(ct.int32) - 1))


@entry("index_overflow")
def short_lengths():
    """The lengths of sequences fit int16, their running sum does not."""
    lengths = indices(12_000, 9_000, 15_000, 4_000, dtype=torch.int16)
    values, out = torch.arange(40_000, device="cuda"), torch.empty(4, device="cuda", dtype=torch.int64)
    ct.launch(torch.cuda.current_stream(), (1,), ragged_starts_kernel, (values, lengths, out, 4))
    return out


@ct.kernel
def lower_bound_kernel(keys, wanted, out, n):
    i = ct.bid(0)
    target = ct.gather(wanted, i).item()
    low, high = 0, n
    for _ in range(31):
        if low < high:
            middle = (low + high) // 2  # DEFECT
            if ct.gather(keys, middle).item() < target:
                low = middle + 1
            else:
                high = middle
    ct.scatter(out, i, low)


@entry("index_overflow")
def binary_search():
    """The middle of two large indices is half of a sum that overflows."""
    n = 2_000_000_000
    keys, wanted = torch.full((1,), 5.0, device="cuda").expand(n), torch.tensor([1.0, 9.0], device="cuda")
    out = torch.empty(2, device="cuda", dtype=torch.int32)
    ct.launch(torch.cuda.current_stream(), (2,), lower_bound_kernel, (keys, wanted, out, n))
    return out


@ct.kernel
def packed_keys_kernel(x, rows, columns, out, T: Size):
    row = ct.load(rows, index=(0,), shape=(T,))
    keys = (row << 20) | ct.load(columns, index=(0,), shape=(T,))  # DEFECT
    ct.store(out, index=(0,), tile=ct.gather(x, (keys >> 20, keys & 0xFFFFF)))


@entry("index_overflow")
def packed_keys():
    """Row and column are packed into a key of 32 bits, which a large row makes negative."""
    x = torch.randn(1, 8, device="cuda").expand(4000, 8)
    out = torch.empty(4, device="cuda")
    rows, columns = indices(5, 2047, 2048, 3999), indices(0, 7, 3, 4)
    ct.launch(torch.cuda.current_stream(), (1,), packed_keys_kernel, (x, rows, columns, out, 4))
    return out


@ct.kernel
def hash_kernel(tokens, table, out, T: Size):
    i = ct.bid(0)
    mixed = ct.load(tokens, index=(i,), shape=(T,), padding_mode=ZERO).astype(ct.uint32) * 2654435761
    mixed = (mixed ^ (mixed >> 15)) * 2246822519
    bucket = (mixed ^ (mixed >> 13)) % 37
    ct.store(out, index=(i,), tile=ct.gather(table, bucket))


@clean
def unsigned_hash():
    """A hash that wraps on purpose, in uint32, and then picks a bucket."""
    tokens, table = indices(5, 99, 50_000, 7, 1_000_003), torch.randn(37, device="cuda")
    out = torch.empty(5, device="cuda")
    ct.launch(torch.cuda.current_stream(), (2,), hash_kernel, (tokens, table, out, 4))
    return out


@ct.kernel
def wide_rows_kernel(x, rows, out, WIDTH: Size):
    i = ct.bid(0)
    row = ct.load(rows, index=(i,), shape=(1,)).astype(ct.int64)
    flat = row * WIDTH + ct.arange(WIDTH, dtype=ct.int64)
    above = ct.gather(x, (row - 1, flat % WIDTH))
    ct.scatter(out, (i, flat % WIDTH), ct.gather(x, (flat // WIDTH, flat % WIDTH)) - above)


@clean
def widened_first():
    """Rows are widened before they are multiplied; the row above the first is -1, which the check replaces."""
    x = torch.randn(1, 64, device="cuda").expand(50_000_000, 64)
    out = torch.zeros(3, 64, device="cuda")
    ct.launch(torch.cuda.current_stream(), (3,), wide_rows_kernel, (x, indices(0, 7, 40_000_000), out, 64))
    return out
