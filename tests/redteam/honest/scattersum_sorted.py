"""Sort by key, and subtract running sums in float64 at the ends of the runs.

family: algorithms
task: scattersum
backend: gpu
"""

import torch


def scattersum(values, keys, count):
    ordered, places = torch.sort(keys)
    sums = torch.cumsum(values[places].double(), 0)
    sums = torch.cat([sums.new_zeros(1), sums])
    ends = torch.searchsorted(ordered, torch.arange(count + 1, dtype=keys.dtype, device=keys.device))
    return (sums[ends[1:]] - sums[ends[:-1]]).to(values.dtype)
