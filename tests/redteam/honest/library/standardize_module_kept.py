"""A layer that is made once for each length and given the weight in each call.

task: standardize
backend: both
"""

import functools

import torch


@functools.lru_cache(maxsize=8)
def _layer(columns):
    return torch.nn.LayerNorm(columns, eps=1e-5, elementwise_affine=False)


def standardize(x, weight):
    with torch.no_grad():
        return _layer(x.shape[1])(x) * weight
