"""Blocks that order themselves by atomics, acquire loads and release stores, and blocks that only seem to."""

import cuda.tile as ct
import torch

from tests.defects import clean, entry

Size = ct.Constant[int]
ACQUIRE, RELEASE, DEVICE = ct.MemoryOrder.ACQUIRE, ct.MemoryOrder.RELEASE, ct.MemoryScope.DEVICE


@ct.kernel
def cleared_kernel(x, total, T: Size):
    i = ct.bid(0)
    if i == 0:
        ct.scatter(total, 0, 0.0)  # DEFECT
    part = ct.sum(ct.load(x, index=(i,), shape=(T,), padding_mode=ct.PaddingMode.ZERO))
    ct.atomic_add(total, 0, part)  # DEFECT


@entry("race")
def cleared_by_one_block():
    """One block clears the sum that the others add to, and may come after them."""
    x, total = torch.randn(64, device="cuda"), torch.zeros(1, device="cuda")
    ct.launch(torch.cuda.current_stream(), (4,), cleared_kernel, (x, total, 16))
    return total


@ct.kernel
def early_kernel(x, total, out, T: Size):
    i = ct.bid(0)
    ct.atomic_add(total, 0, ct.sum(ct.load(x, index=(i,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)))  # DEFECT
    ct.scatter(out, i, ct.gather(total, 0))  # DEFECT


@entry("race")
def read_before_all_have_added():
    """Every block reads the sum when it has added its own part."""
    x, total = torch.randn(64, device="cuda"), torch.zeros(1, device="cuda")
    out = torch.empty(4, device="cuda")
    ct.launch(torch.cuda.current_stream(), (4,), early_kernel, (x, total, out, 16))
    return out


@ct.kernel
def ticket_kernel(counter, total, shares):
    ticket = ct.atomic_add(counter, 0, 1)
    ct.scatter(shares, ticket, 1.0)
    ct.scatter(total, 0, ct.gather(total, 0) + 1.0)  # DEFECT


@entry("race")
def a_ticket_is_no_lock():
    """Blocks draw tickets in an order, and then update a sum without one."""
    counter, total = torch.zeros(1, device="cuda", dtype=torch.int32), torch.zeros(1, device="cuda")
    shares = torch.empty(4, device="cuda")
    ct.launch(torch.cuda.current_stream(), (4,), ticket_kernel, (counter, total, shares))
    return total, shares


@ct.kernel
def one_for_all_kernel(flag, out):
    i = ct.bid(0)
    if i == 0:
        ct.scatter(out, 0, ct.gather(flag, 0))  # DEFECT
    ct.scatter(flag, 0, 7.0)  # DEFECT


@entry("race")
def read_by_one_written_by_all():
    """One block reads what all set."""
    flag, out = torch.zeros(1, device="cuda"), torch.empty(1, device="cuda")
    ct.launch(torch.cuda.current_stream(), (4,), one_for_all_kernel, (flag, out))
    return out


@entry("unvisited")
def copied_before_it_is_whole():
    """The result is a copy of a workspace whose last rows no block has written."""
    x = torch.randn(40, device="cuda")
    work = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (40 // 16,), scale_kernel, (x, work, 16))
    return work.clone()


@ct.kernel
def scale_kernel(x, out, T: Size):
    i = ct.bid(0)
    ct.store(out, index=(i,), tile=2.0 * ct.load(x, index=(i,), shape=(T,)))  # DEFECT


@ct.kernel
def chain_kernel(x, partial, flags, out, T: Size):
    i = ct.bid(0)
    before = ct.zeros((1,), ct.float32)
    if i > 0:
        while ct.load(flags, index=(i - 1,), shape=(1,), memory_order=ACQUIRE, memory_scope=DEVICE).item() == 0:
            pass
        before = ct.load(partial, index=(i - 1,), shape=(1,))
    part = ct.load(x, index=(i,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(partial, index=(i,), tile=before + ct.sum(part))
    ct.store(flags, index=(i,), tile=ct.full((1,), 1, dtype=ct.int32), memory_order=RELEASE, memory_scope=DEVICE)
    ct.store(out, index=(i,), tile=before + ct.cumsum(part, axis=0))


@clean
def chained_by_flags():
    """A scan whose blocks wait for their neighbour's flag: acquire and release give the order."""
    x = torch.randn(60, device="cuda")
    partial, out = torch.empty(4, device="cuda"), torch.empty_like(x)
    flags = torch.zeros(4, device="cuda", dtype=torch.int32)
    ct.launch(torch.cuda.current_stream(), (4,), chain_kernel, (x, partial, flags, out, 16))
    return out


@ct.kernel
def halves_kernel(left, right, out, T: Size):
    i = ct.bid(0)
    place = ct.bid(0) // 2
    if i % 2 == 0:  # noqa: SIM108 (the branch is what is tested)
        tile = ct.load(left, index=(place,), shape=(T,))
    else:
        tile = ct.load(right, index=(place,), shape=(T,))
    ct.store(out, index=(i,), tile=tile)


@clean
def halves_of_one_buffer():
    """Blocks take turns between two views of one storage."""
    base = torch.randn(64, device="cuda")
    out = torch.empty_like(base)
    ct.launch(torch.cuda.current_stream(), (4,), halves_kernel, (base[:32], base[32:], out, 16))
    return out


@ct.kernel
def table_kernel(keys, table, out, T: Size):
    i = ct.bid(0)
    key = ct.load(keys, index=(i,), shape=(T,))
    place = ((key * 1000003) ^ (key >> 7)) & 63
    ct.store(out, index=(i,), tile=ct.gather(table, place))


@clean
def hash_cut_to_its_bits():
    """A signed hash wraps on purpose, and is masked to the table's size."""
    keys = torch.randint(0, 1 << 20, (64,), device="cuda", dtype=torch.int32)
    table, out = torch.randn(64, device="cuda"), torch.empty(64, device="cuda")
    ct.launch(torch.cuda.current_stream(), (4,), table_kernel, (keys, table, out, 16))
    return out


@ct.kernel
def last_value_kernel(x, out, T: Size):
    i = ct.bid(0)
    ct.store(out, index=(0,), tile=ct.load(x, index=(0 * i,), shape=(T,)))


@clean
def all_store_the_same():
    """Every block stores the same tile to the same place."""
    x = torch.randn(16, device="cuda")
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (4,), last_value_kernel, (x, out, 16))
    return out


@ct.kernel
def first_rows_kernel(x, counts, out, T: Size):
    i = ct.bid(0)
    n = ct.load(counts, index=(i,), shape=(1,)).item()
    total = ct.zeros((T,), ct.float32)
    for row in range(n):
        total += ct.load(x, index=(row, 0), shape=(1, T), padding_mode=ct.PaddingMode.ZERO).reshape((T,))
    ct.store(out, index=(i, 0), tile=total.reshape((1, T)))


@clean
def no_rows_at_all():
    """A tensor without elements is read by no block, and some loops have no trips."""
    counts = torch.zeros(3, device="cuda", dtype=torch.int32)
    out = torch.empty(3, 16, device="cuda")
    arguments = (torch.empty(0, 16, device="cuda"), counts, out, 16)
    ct.launch(torch.cuda.current_stream(), (3,), first_rows_kernel, arguments)
    return out
