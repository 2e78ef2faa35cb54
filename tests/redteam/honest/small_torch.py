"""Torch's own multiplication.

family: torch
task: small
backend: gpu
"""


def small(x, factor):
    return x * factor
