"""Torch's multiplication into an output of its own.

task: scale
backend: gpu
"""

import torch


def scale(x, factor):
    out = torch.empty_like(x)
    torch.mul(x, factor, out=out)
    return out
