"""Each block adds to a table of its own, and the tables are added up in order.

task: scattersum
backend: both
"""

import cuda.tile as ct
import torch

TILE = 1024
CHUNK = 64
BLOCKS = 264


@ct.kernel
def own_kernel(values, keys, own, count, T: ct.Constant[int]):
    block = ct.bid(0)
    for step in range(ct.cdiv(ct.cdiv(values.shape[0], T), ct.num_blocks(0))):
        places = (step * ct.num_blocks(0) + block) * T + ct.arange(T, dtype=ct.int32)
        key = ct.gather(keys, places, padding_value=-1)
        where = ct.where(key >= 0, key + block * count, -1)
        ct.atomic_add(own, where, ct.gather(values, places), memory_order=ct.MemoryOrder.RELAXED)


@ct.kernel
def sum_kernel(own, out, K: ct.Constant[int]):
    column = ct.bid(0)
    total = ct.zeros((1, K), ct.float32)
    for row in range(own.shape[0]):
        total = total + ct.load(own, index=(row, column), shape=(1, K), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(column,), tile=ct.reshape(total, (K,)))


def scattersum(values, keys, count):
    blocks = min(ct.cdiv(values.shape[0], TILE), BLOCKS)
    own = torch.zeros(blocks, count, dtype=torch.float32, device=values.device)
    out = torch.empty(count, dtype=torch.float32, device=values.device)
    stream = torch.cuda.current_stream()
    ct.launch(stream, (blocks,), own_kernel, (values, keys, own.view(-1), count, TILE))
    ct.launch(stream, (ct.cdiv(count, CHUNK),), sum_kernel, (own, out, CHUNK))
    return out
