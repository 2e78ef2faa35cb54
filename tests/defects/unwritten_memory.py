"""Reads of memory that nobody wrote."""

import cuda.tile as ct
import torch

from tests.defects import clean, entry

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def accumulate_kernel(x, out, R: Size, T: Size):
    j = ct.bid(0)
    for i in range(ct.num_tiles(x, axis=0, shape=(R, T))):
        part = ct.sum(ct.load(x, index=(i, j), shape=(R, T), padding_mode=ZERO), axis=0)
        total = ct.load(out, index=(j,), shape=(T,), padding_mode=ZERO)  # DEFECT
        ct.store(out, index=(j,), tile=total + part)


@entry("unwritten_memory")
def accumulate_into_empty():
    """Column sums are added up in an output that starts as it was allocated."""
    x = torch.randn(12, 32, device="cuda")
    out = torch.empty(32, device="cuda")
    ct.launch(torch.cuda.current_stream(), (2,), accumulate_kernel, (x, out, 4, 16))
    return out


@ct.kernel
def atomic_kernel(x, out, T: Size):
    i = ct.bid(0)
    a = ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO)
    ct.atomic_add(out, 0, ct.sum(a))  # DEFECT


@entry("unwritten_memory")
def atomic_onto_empty():
    """Blocks add to a total that nobody set to zero."""
    x = torch.randn(64, device="cuda")
    out = x.new_empty(1)
    ct.launch(torch.cuda.current_stream(), (4,), atomic_kernel, (x, out, 16))
    return out


@ct.kernel
def partial_product_kernel(a, b, work, M: Size, N: Size, K: Size, PER: Size):
    split = ct.bid(0)
    total = ct.zeros((M, N), ct.float32)
    tiles = ct.num_tiles(a, axis=1, shape=(M, K))
    for k in range(split * PER, min(split * PER + PER, tiles)):
        left = ct.load(a, index=(0, k), shape=(M, K), padding_mode=ZERO)
        right = ct.load(b, index=(k, 0), shape=(K, N), padding_mode=ZERO)
        total = ct.mma(left, right, total)
    ct.store(work, index=(split, 0, 0), tile=total.reshape((1, M, N)))


@ct.kernel
def add_splits_kernel(work, out, M: Size, N: Size):
    total = ct.zeros((1, M, N), ct.float32)
    for split in range(work.shape[0]):
        total += ct.load(work, index=(split, 0, 0), shape=(1, M, N), padding_mode=ZERO)  # DEFECT
    ct.store(out, index=(0, 0), tile=total.reshape((M, N)))


@entry("unwritten_memory")
def split_depth():
    """The workspace holds four splits, the depth fills three, and the reduction adds all."""
    a, b = torch.randn(16, 80, device="cuda"), torch.randn(80, 16, device="cuda")
    work, out = torch.empty(4, 16, 16, device="cuda"), torch.empty(16, 16, device="cuda")
    used = ct.cdiv(ct.cdiv(80, 16), 2)
    stream = torch.cuda.current_stream()
    ct.launch(stream, (used,), partial_product_kernel, (a, b, work, 16, 16, 16, 2))
    ct.launch(stream, (1,), add_splits_kernel, (work, out, 16, 16))
    return out


@ct.kernel
def decode_kernel(q, keys, lengths, out, T: Size, D: Size):
    batch = ct.bid(0)
    length = ct.load(lengths, index=(batch,), shape=()).item()
    places = ct.arange(T, dtype=ct.int32)
    lanes = ct.arange(D, dtype=ct.int32)
    seen = (places <= length)[:, None]
    k = ct.gather(keys, (batch, places[:, None], lanes[None, :]), mask=seen)  # DEFECT
    scores = ct.sum(k * ct.load(q, index=(batch, 0), shape=(1, D)), axis=1)
    ct.scatter(out, (batch, places), ct.where(places <= length, scores, 0.0))


@entry("unwritten_memory")
def cache_position():
    """Decoding attends to one key more than the cache holds."""
    keys = torch.empty(2, 16, 8, device="cuda")
    lengths = torch.tensor([5, 9], device="cuda", dtype=torch.int32)
    for batch, length in enumerate((5, 9)):
        keys[batch, :length] = torch.randn(length, 8, device="cuda")
    q, out = torch.randn(2, 8, device="cuda"), torch.empty(2, 16, device="cuda")
    ct.launch(torch.cuda.current_stream(), (2,), decode_kernel, (q, keys, lengths, out, 16, 8))
    return out


@ct.kernel
def compact_kernel(x, kept, count, T: Size):
    a = ct.load(x, index=(0,), shape=(T,), padding_mode=ZERO)
    chosen = a > 0.0
    place = ct.cumsum(chosen.astype(ct.int32), axis=0) - 1
    ct.scatter(kept, place, a, mask=chosen)
    ct.scatter(count, 0, ct.sum(chosen.astype(ct.int32)))


@ct.kernel
def log_kernel(kept, out, T: Size):
    i = ct.bid(0)
    a = ct.load(kept, index=(i,), shape=(T,), padding_mode=ZERO)  # DEFECT
    ct.store(out, index=(i,), tile=ct.log(a))


@entry("unwritten_memory")
def compacted_tail():
    """A compaction fills only the first places; the next kernel reads all and returns them."""
    x = torch.cat((torch.ones(10, device="cuda"), -torch.ones(22, device="cuda")))
    kept, out = torch.empty_like(x), torch.empty_like(x)
    count = torch.zeros(1, device="cuda", dtype=torch.int32)
    stream = torch.cuda.current_stream()
    ct.launch(stream, (1,), compact_kernel, (x, kept, count, 32))
    ct.launch(stream, (2,), log_kernel, (kept, out, 16))
    return out


@ct.kernel
def running_min_kernel(x, out, T: Size):
    b = ct.bid(0)
    least = ct.gather(out, b)  # DEFECT
    a = ct.load(x, index=(b, 0), shape=(1, T), padding_mode=ZERO)
    ct.scatter(out, b, ct.minimum(least, ct.min(a)))


@entry("unwritten_memory")
def running_minimum():
    """A minimum starts from the output as it was allocated."""
    x, out = torch.randn(4, 64, device="cuda"), torch.empty(4, device="cuda")
    ct.launch(torch.cuda.current_stream(), (4,), running_min_kernel, (x, out, 64))
    return out


@ct.kernel
def flag_kernel(x, flag, out, T: Size):
    b = ct.bid(0)
    a = ct.load(x, index=(b, 0), shape=(1, T))
    state = ct.gather(flag, b)  # DEFECT
    ct.store(out, index=(b, 0), tile=ct.where(state == 5, a * 2.0, a))


@entry("unwritten_memory")
def branch_on_unwritten_flag():
    """A flag that nobody wrote is compared with a number."""
    x, out = torch.randn(4, 64, device="cuda"), torch.empty(4, 64, device="cuda")
    flag = torch.empty(4, device="cuda", dtype=torch.int32)
    ct.launch(torch.cuda.current_stream(), (4,), flag_kernel, (x, flag, out, 64))
    return out


@ct.kernel
def masked_total_kernel(work, out, n, T: Size):
    i = ct.bid(0)
    a = ct.load(work, index=(i, 0), shape=(4, T), padding_mode=ZERO)
    inside = (ct.arange(T, dtype=ct.int32) < n)[None, :]
    ct.store(out, index=(i,), tile=ct.sum(ct.where(inside, a, 0.0), axis=1))


@clean
def pitched_rows_masked():
    """The columns that nobody wrote are loaded with the tile, and dropped before the sum."""
    x = torch.randn(8, 20, device="cuda")
    work = torch.empty(8, 32, device="cuda")
    work[:, :20].copy_(x)
    out = torch.empty(8, device="cuda")
    ct.launch(torch.cuda.current_stream(), (2,), masked_total_kernel, (work, out, 20, 32))
    return out
