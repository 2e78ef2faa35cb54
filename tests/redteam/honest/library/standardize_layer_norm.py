"""The library's own normalisation, weight and all.

task: standardize
backend: both
"""

import torch


def standardize(x, weight):
    return torch.nn.functional.layer_norm(x, x.shape[1:], weight, eps=1e-5)
