"""Embedding bags: each output row is the sum of the table's rows that a bag names; the table stays in L2."""

import cuda.tile as ct
import torch

ConstInt = ct.Constant[int]

ROWS = 8


@ct.kernel(occupancy=8)
def bag_kernel(table, bags, out, R: ConstInt, D: ConstInt):
    """A block: one bag, R rows of the table at a time, each read in full lines."""
    bag = ct.bid(0)
    columns = ct.arange(D, dtype=ct.int32)[None, :]
    total = ct.zeros((R, D), ct.float32)
    for step in range(bags.shape[1] // R):
        rows = ct.load(bags, index=(bag, step), shape=(1, R), allow_tma=False, check_bounds=False).reshape((R, 1))
        total += ct.gather(table, (rows, columns), check_bounds=False)
    ct.store(out, index=(bag, 0), tile=ct.sum(total, axis=0, keepdims=True), allow_tma=False, check_bounds=False)


def embedding_bag(table, bags):
    """table (entries, D) in float32, bags (bags, size) of int32 -> (bags, D)."""
    out = torch.empty(bags.shape[0], table.shape[1], dtype=table.dtype, device=table.device)
    ct.launch(torch.cuda.current_stream(), (bags.shape[0],), bag_kernel, (table, bags, out, ROWS, table.shape[1]))
    return out
