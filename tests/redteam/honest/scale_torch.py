"""Torch's own multiplication.

family: torch
task: scale
backend: gpu
"""

import torch


def scale(x, factor):
    return torch.mul(x, factor)
