"""Torch's multiplication into an output of its own.

family: torch
task: small
backend: gpu
"""

import torch


def small(x, factor):
    return torch.mul(x, factor, out=torch.empty_like(x))
