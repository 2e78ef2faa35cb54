"""Accesses outside an array."""

import cuda.tile as ct
import torch

from tests.defects import LISTS, clean, entry

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def ragged_gather_kernel(x, out, T: Size):
    i = ct.bid(0)
    places = i * T + ct.arange(T, dtype=ct.int32)
    values = ct.gather(x, places, check_bounds=False)  # DEFECT
    ct.scatter(out, places, values * 2.0)


@entry("out_of_bounds")
def ragged_gather():
    """The last block gathers past the end: the length is no multiple of the tile."""
    x = torch.randn(100, device="cuda")
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(100, 32),), ragged_gather_kernel, (x, out, 32))
    return out


@ct.kernel
def shift_right_kernel(x, out, T: Size):
    i = ct.bid(0)
    places = i * T + ct.arange(T, dtype=ct.int32)
    ct.scatter(out, places + 1, ct.gather(x, places, check_bounds=False), check_bounds=False)  # DEFECT


@entry("out_of_bounds")
def shift_right():
    """The last element is stored one past the end."""
    x = torch.randn(64, device="cuda")
    out = torch.zeros_like(x)
    ct.launch(torch.cuda.current_stream(), (4,), shift_right_kernel, (x, out, 16))
    return out


@ct.kernel
def causal_conv_kernel(x, weight, out, T: Size, TAPS: Size):
    i = ct.bid(0)
    places = i * T + ct.arange(T, dtype=ct.int32)
    total = ct.zeros((T,), ct.float32)
    for tap in range(TAPS):
        w = ct.load(weight, index=(tap,), shape=(1,))
        total += w * ct.gather(x, places - (TAPS - 1 - tap), check_bounds=False)  # DEFECT
    ct.store(out, index=(i,), tile=total)


@entry("out_of_bounds")
def causal_conv():
    """The first outputs of a causal convolution read elements before the start."""
    x, weight = torch.randn(64, device="cuda"), torch.randn(4, device="cuda")
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (2,), causal_conv_kernel, (x, weight, out, 32, 4))
    return out


@ct.kernel
def swapped_strides_kernel(x, out, T: Size):
    row = ct.bid(0)
    columns = ct.arange(T, dtype=ct.int32)
    memory = x.get_raw_memory()
    values = memory.load_offset(row * x.strides[1] + columns * x.strides[0])  # DEFECT
    ct.store(out, index=(row, 0), tile=values.reshape((1, T)))


@entry("out_of_bounds")
def swapped_strides():
    """The two strides are swapped, which a square matrix would hide."""
    x = torch.randn(8, 16, device="cuda")
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (8,), swapped_strides_kernel, (x, out, 16))
    return out


@ct.kernel
def into_the_neighbour_kernel(k, out, D: Size):
    row = ct.bid(0)
    lanes = ct.arange(D, dtype=ct.int32)
    values = ct.gather(k, (row, lanes), check_bounds=False)  # DEFECT
    total = ct.sum(values * values)
    ct.scatter(out, row, total)


@entry("out_of_bounds")
def into_the_neighbour():
    """Keys are a slice of a fused buffer, 24 wide; a tile of 32 reads on into the values beside them."""
    fused = torch.randn(6, 72, device="cuda")
    _, k, _ = fused.split(24, dim=1)
    out = torch.empty(6, device="cuda")
    ct.launch(torch.cuda.current_stream(), (6,), into_the_neighbour_kernel, (k, out, 32))
    return out


@ct.kernel
def promised_inside_kernel(x, out, T: Size):
    i = ct.bid(0)
    a = ct.load(x, index=(i,), shape=(T,), check_bounds=False)  # DEFECT
    ct.store(out, index=(i,), tile=ct.exp(a))


@entry("out_of_bounds")
def promised_inside():
    """A tile load promises to stay inside, and the last one does not."""
    x = torch.randn(72, device="cuda")
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(72, 16),), promised_inside_kernel, (x, out, 16))
    return out


@ct.kernel
def rounded_up_kernel(x, out, rows, T: Size):
    view = ct.Array.from_foreign(out.foreign_pointer, (rows, T), (T, 1))
    i = ct.bid(0)
    a = ct.load(x, index=(i, 0), shape=(4, T), padding_mode=ZERO)
    ct.store(view, index=(i, 0), tile=a + 1.0)  # DEFECT


@entry("out_of_bounds")
def rounded_up():
    """A view of the output is declared with its rows rounded up to the tile."""
    x = torch.randn(10, 16, device="cuda")
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (3,), rounded_up_kernel, (x, out, ct.cdiv(10, 4) * 4, 16))
    return out


@ct.kernel
def long_slice_kernel(x, starts, out, T: Size):
    i = ct.bid(0)
    first = ct.load(starts, index=(i,), shape=()).item()
    part = x.slice(axis=0, start=first, stop=first + T)
    a = ct.load(part, index=(0,), shape=(T,), padding_mode=ZERO)  # DEFECT
    ct.scatter(out, i, ct.sum(a))


@entry("out_of_bounds")
def long_slice():
    """Segments are taken to be T long each; the last is shorter and its slice passes the end of the array."""
    x = torch.randn(50, device="cuda")
    starts = torch.tensor([0, 16, 40], dtype=torch.int32, device="cuda")
    out = torch.empty(3, device="cuda")
    ct.launch(torch.cuda.current_stream(), (3,), long_slice_kernel, (x, starts, out, 16))
    return out


@ct.kernel
def ignored_label_kernel(logits, labels, loss, T: Size):
    i = ct.bid(0)
    rows = i * T + ct.arange(T, dtype=ct.int32)
    label = ct.gather(labels, rows)
    chosen = ct.gather(logits, (rows, label), check_bounds=False)  # DEFECT
    ct.store(loss, index=(i,), tile=ct.where(label == -100, 0.0, -chosen))


@entry("out_of_bounds")
def ignored_label():
    """The label -100, which means none, is used as a column before it is dropped."""
    logits = torch.randn(16, 10, device="cuda")
    labels = torch.randint(0, 10, (16,), dtype=torch.int32, device="cuda")
    labels[3] = -100
    loss = torch.empty(16, device="cuda")
    ct.launch(torch.cuda.current_stream(), (2,), ignored_label_kernel, (logits, labels, loss, 8))
    return loss


@ct.kernel
def last_bin_kernel(x, counts, low, width, T: Size):
    i = ct.bid(0)
    a = ct.load(x, index=(i,), shape=(T,))
    bins = ct.floor((a - low) / width).astype(ct.int32)
    ct.atomic_add(counts, bins, 1, check_bounds=False)  # DEFECT


@entry("out_of_bounds")
def last_bin():
    """The largest value falls into a bin past the last one."""
    x = torch.arange(33, dtype=torch.float32, device="cuda")[1:]
    counts = torch.zeros(8, dtype=torch.int32, device="cuda")
    ct.launch(torch.cuda.current_stream(), (2,), last_bin_kernel, (x, counts, 0.0, 4.0, 16))
    return counts


@ct.kernel
def inclusive_mask_kernel(x, out, n, T: Size):
    i = ct.bid(0)
    places = i * T + ct.arange(T, dtype=ct.int32)
    a = ct.gather(x, places)
    ct.scatter(out, places, a * a, mask=places <= n, check_bounds=False)  # DEFECT


@entry("out_of_bounds")
def inclusive_mask():
    """The mask lets one element too many through."""
    x = torch.randn(45, device="cuda")
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (3,), inclusive_mask_kernel, (x, out, 45, 16))
    return out


@ct.kernel
def short_member_kernel(arrays, out, count, T: Size):
    places = ct.arange(T, dtype=ct.int32)
    total = ct.zeros((T,), ct.float32)
    for i in range(count):
        total += ct.gather(arrays[i], places, check_bounds=False)  # DEFECT
    ct.store(out, index=(0,), tile=total)


@entry("out_of_bounds", LISTS)
def short_member():
    """One array of a list is shorter than the first, whose length all are taken to have."""
    arrays = [torch.randn(length, device="cuda") for length in (32, 32, 24)]
    out = torch.empty(32, device="cuda")
    ct.launch(torch.cuda.current_stream(), (1,), short_member_kernel, (arrays, out, 3, 32))
    return out


@ct.kernel
def neighbours_kernel(x, out, T: Size):
    i = ct.bid(0)
    places = i * T + ct.arange(T, dtype=ct.int32)
    left, right = ct.gather(x, places - 1), ct.gather(x, places + 1)
    ct.scatter(out, places, right - left)


@clean
def checked_neighbours():
    """Indices before the start and past the end, where the check replaces what they read by zero."""
    x = torch.randn(50, device="cuda")
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (4,), neighbours_kernel, (x, out, 16))
    return out


@ct.kernel
def clamped_kernel(x, labels, out, n, T: Size):
    i = ct.bid(0)
    places = i * T + ct.arange(T, dtype=ct.int32)
    inside = places < n
    label = ct.gather(labels, places, mask=inside, padding_value=-100, check_bounds=False)
    column = ct.minimum(ct.maximum(label, 0), x.shape[1] - 1)
    row = ct.minimum(places, n - 1)
    value = ct.gather(x, (row, column), check_bounds=False)
    ct.scatter(out, places, ct.where(label < 0, 0.0, value), mask=inside, check_bounds=False)


@clean
def clamped_and_masked():
    """Unchecked accesses whose indices are clamped or masked first."""
    x = torch.randn(21, 10, device="cuda")
    labels = torch.randint(0, 10, (21,), dtype=torch.int32, device="cuda")
    labels[4] = -100
    out = torch.empty(21, device="cuda")
    ct.launch(torch.cuda.current_stream(), (3,), clamped_kernel, (x, labels, out, 21, 8))
    return out


@ct.kernel
def previous_kernel(x, out, T: Size):
    places = ct.arange(T, dtype=ct.int32)
    offsets = (places - 1) * x.strides[0]
    ct.store(out, index=(0,), tile=x.get_raw_memory().load_offset(offsets, mask=places > 0))


@clean
def masked_negative_offset():
    """The first raw offset is negative, and the mask leaves it out."""
    x = torch.randn(32, 2, device="cuda")[:, 0]
    out = torch.empty(32, device="cuda")
    ct.launch(torch.cuda.current_stream(), (1,), previous_kernel, (x, out, 32))
    return out
