"""The same operations, compiled by torch.

task: standardize
backend: both
"""

import torch


@torch.compile(dynamic=True)
def _compiled(x, weight):
    variance, mean = torch.var_mean(x, dim=1, keepdim=True, correction=0)
    return (x - mean) * torch.rsqrt(variance + 1e-5) * weight


def standardize(x, weight):
    return _compiled(x, weight)
