"""Variance and mean by one function of torch.

family: torch
task: standardize
backend: both
"""

import torch


def standardize(x, weight):
    variance, mean = torch.var_mean(x, dim=1, keepdim=True, correction=0)
    return (x - mean) * torch.rsqrt(variance + 1e-5) * weight
