"""Index arithmetic that overflows its integer type. Large arrays are views of one small row."""

import cuda.tile as ct
import torch

from tests.defects import clean, entry

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


def indices(*values, dtype=torch.int32):
    return torch.tensor(values, device="cuda", dtype=dtype)


@ct.kernel
def flat_rows_kernel(x, rows, out, WIDTH: Size):
    i = ct.bid(0)
    row = ct.load(rows, index=(i,), shape=(1,))
    flat = row * WIDTH + ct.arange(WIDTH, dtype=ct.int32)  # DEFECT
    ct.scatter(out, (i, flat % WIDTH), ct.gather(x, (flat // WIDTH, flat % WIDTH)))


@entry("index_overflow")
def flattened_rows():
    """A flat index of a table with more than two thousand million elements; the check hides the negative row."""
    x = torch.randn(1, 64, device="cuda").expand(50_000_000, 64)
    out = torch.zeros(3, 64, device="cuda")
    ct.launch(torch.cuda.current_stream(), (3,), flat_rows_kernel, (x, indices(0, 7, 40_000_000), out, 64))
    return out


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
def small_pages_kernel(pool, pages, out, PAGE: Size):
    i = ct.bid(0)
    page = ct.load(pages, index=(i,), shape=(1,))
    start = (page * PAGE).astype(ct.int32)  # DEFECT
    ct.store(out, index=(i,), tile=ct.gather(pool, start + ct.arange(PAGE, dtype=ct.int32)))


@entry("index_overflow")
def byte_pages():
    """Page numbers are bytes, and are widened after they were multiplied."""
    pool, pages = torch.randn(32 * 16, device="cuda"), indices(1, 7, 20, dtype=torch.int8)
    out = torch.empty(3 * 16, device="cuda")
    ct.launch(torch.cuda.current_stream(), (3,), small_pages_kernel, (pool, pages, out, 16))
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


def packed_place(i, j):
    """Where element (i, j) of a symmetric matrix lies in its packed lower triangle."""
    return i * (i + 1) // 2 + j  # DEFECT


@ct.kernel
def packed_row_kernel(packed, rows, out, T: Size):
    i = ct.bid(0)
    row = ct.load(rows, index=(i,), shape=()).item()
    columns = ct.arange(T, dtype=ct.int32)
    ct.store(out, index=(i, 0), tile=ct.gather(packed, packed_place(row, columns)).reshape((1, T)))


@entry("index_overflow")
def packed_triangle():
    """The product overflows before it is halved, though the place itself fits."""
    packed = torch.randn(1, device="cuda").expand(2_000_000_000)
    out = torch.empty(2, 16, device="cuda")
    ct.launch(torch.cuda.current_stream(), (2,), packed_row_kernel, (packed, indices(100, 50_000), out, 16))
    return out


@ct.kernel
def nearest_kernel(image, out, first, source, target, T: Size):
    i = ct.bid(0)
    places = first + i * T + ct.arange(T, dtype=ct.int32)
    nearest = places * source // target  # DEFECT
    ct.store(out, index=(i,), tile=ct.gather(image, ct.maximum(nearest, 0)).astype(ct.int32))


@entry("index_overflow")
def nearest_neighbour():
    """A line is resampled: place times source length turns negative, and a clamp hides it."""
    source, target = 60_000, 90_000
    image, out = torch.arange(source, device="cuda"), torch.empty(32, device="cuda", dtype=torch.int32)
    arguments = (image, out, 40_000, source, target, 16)
    ct.launch(torch.cuda.current_stream(), (2,), nearest_kernel, arguments)
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
def bigram_kernel(tokens, table, out, vocabulary, T: Size, D: Size):
    places = ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    before, here = ct.gather(tokens, places - 1), ct.gather(tokens, places)
    bigram = before * vocabulary + here  # DEFECT
    buckets = bigram % table.shape[0]
    columns = ct.arange(D, dtype=ct.int32)
    ct.scatter(out, (places[:, None], columns[None, :]), ct.gather(table, (buckets[:, None], columns[None, :])))


@entry("index_overflow")
def bigram_buckets():
    """The number of a pair of tokens overflows before the modulo, so that it falls into another bucket."""
    tokens, table = indices(12, 50_000, 49_000, 3, 44_000, 44_001), torch.randn(97, 8, device="cuda")
    out = torch.empty(6, 8, device="cuda")
    ct.launch(torch.cuda.current_stream(), (2,), bigram_kernel, (tokens, table, out, 50_257, 4, 8))
    return out


@ct.kernel
def scores_kernel(x, picks, out, heads, length, width, T: Size):
    i = ct.bid(0)
    batch = ct.gather(picks, (i, 0)).item()
    head = ct.gather(picks, (i, 1)).item()
    line = (batch * heads + head) * length
    start = line * width  # DEFECT
    places = start + ct.arange(T, dtype=ct.int32)
    values = ct.gather(x, (places // (length * width), places % width))
    ct.store(out, index=(i, 0), tile=values.reshape((1, T)))


@entry("index_overflow")
def three_dimensions():
    """Batch, head and position are flattened into one index of attention scores."""
    heads, length, width = 32, 4096, 2048
    x = torch.randn(1, width, device="cuda").expand(16 * heads, width)
    picks = torch.tensor([[0, 3], [6, 31], [15, 0]], device="cuda", dtype=torch.int32)
    out = torch.empty(3, 16, device="cuda")
    ct.launch(torch.cuda.current_stream(), (3,), scores_kernel, (x, picks, out, heads, length, width, 16))
    return out


@ct.kernel
def ring_kernel(ring, new, step, stride, T: Size):
    slot = (step * stride) % ring.shape[0]  # DEFECT
    places = slot + ct.arange(T, dtype=ct.int32)
    ct.scatter(ring, places % ring.shape[0], ct.load(new, index=(0,), shape=(T,)))


@entry("index_overflow")
def ring_buffer():
    """The slot of a late step is computed from a product of two arguments."""
    ring, new = torch.zeros(1000, device="cuda"), torch.randn(16, device="cuda")
    ct.launch(torch.cuda.current_stream(), (1,), ring_kernel, (ring, new, 3_000_000, 1024, 16))
    return ring


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
def noise_kernel(x, out, seed, T: Size):
    i = ct.bid(0)
    places = i * T + ct.arange(T, dtype=ct.int32)
    state = (places + seed) * 1103515245 + 12345
    state = state * 1103515245 + 12345
    keep = ((state >> 16) & 1) == 1
    ct.scatter(out, places, ct.where(keep, 2.0 * ct.gather(x, places), 0.0))


@clean
def overflowing_noise():
    """Pseudo-random numbers overflow int32 and choose values, never places."""
    x = torch.randn(45, device="cuda")
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (3,), noise_kernel, (x, out, 1234, 16))
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
