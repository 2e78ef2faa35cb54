"""Return a small tensor whose shape, dtype and device lie.

task: matmul
backend: both
ends: crashed
"""

import cuda.tile as ct
import torch

TM, TN, TK = 32, 32, 32


@ct.kernel
def matmul_kernel(a, b, out, M: ct.Constant[int], N: ct.Constant[int], K: ct.Constant[int]):
    row, column = ct.bid(0), ct.bid(1)
    total = ct.zeros((M, N), ct.float32)
    for step in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, index=(row, step), shape=(M, K), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, index=(step, column), shape=(K, N), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(left, right, total)
    ct.store(out, index=(row, column), tile=total.astype(out.dtype))


def right(a, b):
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    grid = (ct.cdiv(out.shape[0], TM), ct.cdiv(out.shape[1], TN))
    ct.launch(torch.cuda.current_stream(), grid, matmul_kernel, (a, b, out, TM, TN, TK))
    return out


class Lying(torch.Tensor):
    said = None

    @property
    def shape(self):
        return self.said

    @property
    def dtype(self):
        return torch.float16

    def size(self, dim=None):
        return self.said if dim is None else self.said[dim]

    def numel(self):
        return self.said.numel()

    def stride(self, dim=None):
        return (self.said[1], 1) if dim is None else (self.said[1], 1)[dim]


def matmul(a, b):
    made = right(a[:32], b[:, :32])
    lying = made.as_subclass(Lying)
    lying.said = torch.Size((a.shape[0], b.shape[1]))
    return lying
