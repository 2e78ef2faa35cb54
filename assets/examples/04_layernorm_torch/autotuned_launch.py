"""Layer normalisation in plain torch, tuned: the ways that torch has of computing it, timed once for each shape.

A torch function has no launch hints. What can be searched is which operations it is made of: the fewer, the fewer times
the matrix goes through memory. Where nothing can be timed, the first way of the space is taken.
"""

import os
import statistics
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from fixed_launch import layernorm as composed

ROUNDS = 10
_tuned = {}


def fused(x, weight, bias, eps):
    """One operation: a row is read once and written once."""
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def two_passes(x, weight, bias, eps):
    """Mean and variance in one operation, then the fewest that apply them."""
    variance, mean = torch.var_mean(x.float(), dim=-1, correction=0, keepdim=True)
    return torch.addcmul(bias, (x - mean) * torch.rsqrt(variance + eps), weight).to(x.dtype)


WAYS = {"fused": fused, "two_passes": two_passes, "composed": composed}


def search_space():
    """The configs to try; fixed_launch.py's own way is among them, so that tuning cannot lose."""
    return [SimpleNamespace(way=way) for way in WAYS]


def _median_ms(function, arguments):
    """Device time of a call in ms. Raises RuntimeError where there is no GPU's clock."""
    times = []
    for _ in range(ROUNDS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        function(*arguments)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times[1:])  # the first call prepares


def _tune(arguments):
    space = search_space()
    try:
        best = min(space, key=lambda config: _median_ms(WAYS[config.way], arguments))
    except RuntimeError:
        best = space[0]
    return best, WAYS[best.way]


def layernorm(x, weight, bias, eps):
    """x (M, N), weight and bias (N,) of one dtype -> out (M, N). Tunes on the first call for a shape."""
    arguments = (x, weight, bias, eps)
    if os.environ.get("DISABLE_AUTOTUNE", "0") == "1":
        return composed(*arguments)
    key = (tuple(x.shape), x.dtype, str(x.device))
    if key not in _tuned:
        _tuned[key] = _tune(arguments)
    _, way = _tuned[key]
    return way(*arguments)
