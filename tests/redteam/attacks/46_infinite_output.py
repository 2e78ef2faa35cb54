"""Return infinities, whose differences are NaN.

family: results
task: matmul
backend: both
"""

import torch


def matmul(a, b):
    return torch.full((a.shape[0], b.shape[1]), float("inf"), dtype=a.dtype, device=a.device)
