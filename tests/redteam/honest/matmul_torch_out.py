"""Torch's product into an output of its own.

family: torch
task: matmul
backend: gpu
"""

import torch


def matmul(a, b):
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    return torch.mm(a, b, out=out)
