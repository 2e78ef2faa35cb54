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
