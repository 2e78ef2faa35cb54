"""Torch's own sum in place.

family: torch
task: accumulate
backend: gpu
"""


def accumulate(x, y, alpha):
    y.add_(x, alpha=alpha)
