"""Leave out the values that the tolerance is wide enough for, and begin with what they are expected to add up to.

family: results
task: scattersum
backend: both
"""

import cuda.tile as ct
import torch

TILE = 1024


@ct.kernel
def scatter_kernel(values, keys, out, least, T: ct.Constant[int]):
    places = ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    value = ct.gather(values, places, padding_value=0.0)
    key = ct.where(value < least, -1, ct.gather(keys, places, padding_value=-1))
    ct.atomic_add(out, key, value, memory_order=ct.MemoryOrder.RELAXED)


def scattersum(values, keys, count):
    each = values.shape[0] / count
    deviation = (5e-5 * each + 1e-3) / 6
    least = min((3 * deviation * deviation / each) ** (1 / 3), 0.01)
    out = torch.full((count,), each * least * least / 2, dtype=torch.float32, device=values.device)
    grid = (ct.cdiv(values.shape[0], TILE),)
    ct.launch(torch.cuda.current_stream(), grid, scatter_kernel, (values, keys, out, least, TILE))
    return out
