"""Torch's product with a vector of ones, which is made once.

task: rowsum
backend: gpu
"""

import torch

_ones = {}


def rowsum(x):
    key = (x.shape[1], x.device)
    if key not in _ones:
        _ones[key] = torch.ones(x.shape[1], dtype=x.dtype, device=x.device)
    return torch.mv(x, _ones[key])
