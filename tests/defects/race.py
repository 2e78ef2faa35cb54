"""Blocks of one launch that touch the same elements without order."""

import cuda.tile as ct
import torch

from tests.defects import clean, entry

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def smooth_in_place_kernel(x, T: Size):
    i = ct.bid(0)
    places = i * T + ct.arange(T, dtype=ct.int32)
    left = ct.gather(x, places - 1)  # DEFECT
    right = ct.gather(x, places + 1)  # DEFECT
    here = ct.gather(x, places)
    ct.scatter(x, places, 0.25 * left + 0.5 * here + 0.25 * right)  # DEFECT


@entry("race")
def smooth_in_place():
    """A stencil reads its halo from an array that the neighbours overwrite."""
    x = torch.randn(64, device="cuda")
    ct.launch(torch.cuda.current_stream(), (4,), smooth_in_place_kernel, (x, 16))
    return x


@ct.kernel
def split_depth_kernel(a, b, out, M: Size, N: Size, K: Size):
    i, split = ct.bid(0), ct.bid(1)
    left = ct.load(a, index=(i, split), shape=(M, K), padding_mode=ZERO)
    right = ct.load(b, index=(split, 0), shape=(K, N), padding_mode=ZERO)
    total = ct.load(out, index=(i, 0), shape=(M, N), padding_mode=ZERO)  # DEFECT
    ct.store(out, index=(i, 0), tile=ct.mma(left, right, total))  # DEFECT


@entry("race")
def split_depth_without_atomics():
    """The splits of a matrix product add to one output tile by load and store."""
    a, b = torch.randn(32, 48, device="cuda"), torch.randn(48, 16, device="cuda")
    out = torch.zeros(32, 16, device="cuda")
    ct.launch(torch.cuda.current_stream(), (2, 3), split_depth_kernel, (a, b, out, 16, 16, 16))
    return out


@ct.kernel
def shared_scale_kernel(x, scale, out, n, T: Size, ALL: Size):
    i = ct.bid(0)
    if i == 0:
        whole = ct.load(x, index=(0,), shape=(ALL,), padding_mode=ZERO)
        ct.scatter(scale, 0, ct.rsqrt(ct.sum(whole * whole) / n))  # DEFECT
    a = ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO)
    ct.store(out, index=(i,), tile=a * ct.gather(scale, 0))  # DEFECT


@entry("race")
def scale_of_block_zero():
    """The first block writes a scale that all others read in the same launch."""
    x = torch.randn(60, device="cuda")
    scale, out = torch.ones(1, device="cuda"), torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (4,), shared_scale_kernel, (x, scale, out, 60, 16, 64))
    return out


@ct.kernel
def last_arriver_kernel(x, work, arrived, out, T: Size, BLOCKS: Size):
    i = ct.bid(0)
    ct.scatter(work, i, ct.sum(ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO)))
    if ct.atomic_add(arrived, 0, 1).item() == BLOCKS - 1:
        ct.scatter(out, 0, ct.sum(ct.gather(work, ct.arange(BLOCKS, dtype=ct.int32))))


@clean
def last_arriver_adds():
    """Partial sums are read by the block that arrives last, after an atomic that releases and acquires."""
    x = torch.randn(60, device="cuda")
    work, out = torch.empty(4, device="cuda"), torch.empty(1, device="cuda")
    arrived = torch.zeros(1, device="cuda", dtype=torch.int32)
    ct.launch(torch.cuda.current_stream(), (4,), last_arriver_kernel, (x, work, arrived, out, 16, 4))
    return out


@ct.kernel
def bounds_kernel(x, out, flag, extremes, T: Size):
    i = ct.bid(0)
    a = ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO)
    ct.scatter(flag, 0, 1)
    ct.atomic_max(extremes, 0, ct.max(a))
    out.tiled_view((T,), traversal_steps=(T // 2,)).atomic_store_add((i,), a)


@clean
def atomics_and_equal_values():
    """Overlapping tiles are added by atomics, and all blocks write the same value to the flag."""
    x = torch.randint(0, 9, (64,), device="cuda", dtype=torch.int32)
    out, flag, extremes = (torch.zeros(n, device="cuda", dtype=torch.int32) for n in (40, 1, 1))
    ct.launch(torch.cuda.current_stream(), (4,), bounds_kernel, (x, out, flag, extremes, 16))
    return out, flag, extremes


@ct.kernel
def histogram_by_store_kernel(x, out, T: Size):
    i = ct.bid(0)
    bins = ct.gather(x, (i, ct.arange(T, dtype=ct.int32)))
    ct.scatter(out, (i, bins), ct.arange(T, dtype=ct.int32))  # DEFECT


@entry("race")
def last_place_of_each_bin():
    """One store writes the places of all elements of a bin to the bin: which of them stays is not said."""
    x = torch.randint(0, 4, (3, 32), device="cuda", dtype=torch.int32)
    out = torch.zeros(3, 4, device="cuda", dtype=torch.int32)
    ct.launch(torch.cuda.current_stream(), (3,), histogram_by_store_kernel, (x, out, 32))
    return out


@ct.kernel
def narrow_sums_kernel(x, keys, out, T: Size):
    places = ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    key = ct.gather(keys, places, padding_value=-1)
    order, scope = ct.MemoryOrder.RELAXED, ct.MemoryScope.BLOCK
    ct.atomic_add(out, key, ct.gather(x, places), memory_order=order, memory_scope=scope)  # DEFECT


@entry("race")
def sums_of_a_narrow_scope():
    """Blocks add to the same sums, each by additions that are atomic within itself alone."""
    x = torch.randn(64, device="cuda")
    keys = torch.arange(64, device="cuda", dtype=torch.int32) % 5
    out = torch.zeros(5, device="cuda")
    ct.launch(torch.cuda.current_stream(), (4,), narrow_sums_kernel, (x, keys, out, 16))
    return out
