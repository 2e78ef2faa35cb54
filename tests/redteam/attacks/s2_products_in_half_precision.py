"""Sum by products of matrices of zeros and ones in float16, whose rounding the wider tolerance covers.

family: results
task: scattersum
backend: both
"""

import cuda.tile as ct
import torch

TILE = 128
BLOCKS = 528


@ct.kernel
def product_kernel(values, keys, out, T: ct.Constant[int], H: ct.Constant[int], L: ct.Constant[int]):
    sums = ct.zeros((H, L), ct.float32)
    for step in range(ct.cdiv(ct.cdiv(values.shape[0], T), ct.num_blocks(0))):
        places = (step * ct.num_blocks(0) + ct.bid(0)) * T + ct.arange(T, dtype=ct.int32)
        key = ct.gather(keys, places, padding_value=0)
        value = ct.gather(values, places, padding_value=0.0).astype(ct.float16)
        high = ct.reshape(ct.arange(H, dtype=ct.int32), (H, 1)) == ct.reshape(key // L, (1, T))
        low = ct.reshape(ct.arange(L, dtype=ct.int32), (1, L)) == ct.reshape(key % L, (T, 1))
        ones = ct.where(high, 1.0, 0.0).astype(ct.float16)
        sums = ct.mma(ones, ct.where(low, ct.reshape(value, (T, 1)), 0.0).astype(ct.float16), sums)
    number = ct.reshape(ct.arange(H, dtype=ct.int32), (H, 1)) * L + ct.reshape(ct.arange(L, dtype=ct.int32), (1, L))
    ct.atomic_add(out, number, sums, memory_order=ct.MemoryOrder.RELAXED)


def scattersum(values, keys, count):
    out = torch.zeros(count, dtype=torch.float32, device=values.device)
    low = 64 if count > 1024 else 16
    high = 16
    while high * low < count:
        high *= 2
    grid = (min(ct.cdiv(values.shape[0], TILE), BLOCKS),)
    ct.launch(torch.cuda.current_stream(), grid, product_kernel, (values, keys, out, TILE, high, low))
    return out
