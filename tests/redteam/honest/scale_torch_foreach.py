"""Torch's multiplication over a list of pieces.

family: torch
task: scale
backend: gpu
"""

import torch


def scale(x, factor):
    return torch.cat(torch._foreach_mul(list(x.split(1 << 24)), factor))
