"""Sums in float64, and the rest in place in a buffer of its own.

task: standardize
backend: both
"""

import torch


def standardize(x, weight):
    mean = x.mean(dim=1, keepdim=True, dtype=torch.float64).float()
    out = x - mean
    scale = torch.rsqrt(out.square().mean(dim=1, keepdim=True, dtype=torch.float64) + 1e-5).float()
    return out.mul_(scale).mul_(weight)
