"""Take torch's own.

family: library
task: softmax
backend: gpu
"""

import torch


def softmax(x):
    return torch.softmax(x, dim=-1)
