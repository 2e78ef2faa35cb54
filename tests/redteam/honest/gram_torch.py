"""Torch's own product, in full float32.

family: torch
task: gram
backend: gpu
"""

import torch


def gram(x):
    return torch.mm(x, x.mT)
