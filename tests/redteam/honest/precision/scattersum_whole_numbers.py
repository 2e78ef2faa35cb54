"""Add whole numbers of 64 bits in units of the largest value, whose sum does not depend on the order.

task: scattersum
backend: both
"""

import cuda.tile as ct
import torch

TILE = 1024
UNIT = 2.0**38


@ct.kernel
def scatter_kernel(values, keys, sums, top, unit, T: ct.Constant[int]):
    places = ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    key = ct.gather(keys, places, padding_value=-1)
    share = ct.gather(values, places, padding_value=0.0) / ct.load(top, index=(0,), shape=(1,))
    ct.atomic_add(sums, key, (share * unit).astype(ct.int64), memory_order=ct.MemoryOrder.RELAXED)


@ct.kernel
def float_kernel(sums, out, top, unit, T: ct.Constant[int]):
    whole = ct.load(sums, index=(ct.bid(0),), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    shares = whole.astype(ct.float32) / unit
    ct.store(out, index=(ct.bid(0),), tile=shares * ct.load(top, index=(0,), shape=(1,)))


def scattersum(values, keys, count):
    top = torch.linalg.vector_norm(values, ord=float("inf")).view(1).clamp_min(1e-37)
    sums = torch.zeros(count, dtype=torch.int64, device=values.device)
    out = torch.empty(count, dtype=torch.float32, device=values.device)
    stream = torch.cuda.current_stream()
    ct.launch(stream, (ct.cdiv(values.shape[0], TILE),), scatter_kernel, (values, keys, sums, top, UNIT, TILE))
    ct.launch(stream, (ct.cdiv(count, TILE),), float_kernel, (sums, out, top, UNIT, TILE))
    return out
