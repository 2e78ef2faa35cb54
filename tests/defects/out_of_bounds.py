"""Accesses outside an array."""

import cuda.tile as ct
import torch

from tests.defects import clean, entry

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


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
def short_member_kernel(arrays, out, count, T: Size):
    places = ct.arange(T, dtype=ct.int32)
    total = ct.zeros((T,), ct.float32)
    for i in range(count):
        total += ct.gather(arrays[i], places, check_bounds=False)  # DEFECT
    ct.store(out, index=(0,), tile=total)


@entry("out_of_bounds")
def short_member():
    """One array of a list is shorter than the first, whose length all are taken to have."""
    arrays = [torch.randn(length, device="cuda") for length in (32, 32, 24)]
    out = torch.empty(32, device="cuda")
    ct.launch(torch.cuda.current_stream(), (1,), short_member_kernel, (arrays, out, 3, 32))
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
