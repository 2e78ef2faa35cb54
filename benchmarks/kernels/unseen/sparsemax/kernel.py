"""Sparsemax of long rows: out = max(x - tau, 0), where tau, found by bisection, makes the row sum to one."""

import cuda.tile as ct
import torch

ConstInt = ct.Constant[int]

STEPS = 24


@ct.kernel(occupancy=8, num_worker_warps=4)
def sparsemax_kernel(x, out, N: ConstInt, STEPS: ConstInt):
    """A block: one row, all of it in one tile for all steps."""
    row = ct.bid(0)
    a = ct.load(x, index=(row, 0), shape=(1, N), allow_tma=False, check_bounds=False)
    top = ct.max(a, axis=1, keepdims=True)
    low, high = top - 1.0, top
    for _ in range(STEPS):
        middle = (low + high) * 0.5
        mass = ct.sum(ct.maximum(a - middle, 0.0), axis=1, keepdims=True)
        over = mass >= 1.0
        low = ct.where(over, middle, low)
        high = ct.where(over, high, middle)
    inside = a > low
    count = ct.sum(ct.where(inside, 1.0, 0.0), axis=1, keepdims=True)
    tau = low + (ct.sum(ct.maximum(a - low, 0.0), axis=1, keepdims=True) - 1.0) / count
    ct.store(out, index=(row, 0), tile=ct.maximum(a - tau, 0.0), allow_tma=False)


def sparsemax(x):
    """x (rows, N) in float32, N a power of two."""
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), sparsemax_kernel, (x, out, x.shape[1], STEPS))
    return out
