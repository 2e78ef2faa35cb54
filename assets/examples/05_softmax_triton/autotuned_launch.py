"""Softmax in Triton, tuned: the kernel of fixed_launch.py with its number of warps searched once for each shape.

More warps share a row: each thread keeps fewer values in registers, and more loads are under way at once.
"""

import os
from types import SimpleNamespace

import torch
import triton
from fixed_launch import softmax as fixed_softmax
from fixed_launch import softmax_kernel

ORIGINAL = SimpleNamespace(num_warps=4)  # Triton's default, which fixed_launch.py runs with: tuning cannot lose
_tuned = {}


def search_space():
    """The configs to try, the original first."""
    return [ORIGINAL, *(SimpleNamespace(num_warps=warps) for warps in (1, 2, 8, 16))]


def _launch(x, out, config):
    rows, columns = x.shape
    tile = triton.next_power_of_2(columns)
    softmax_kernel[(rows,)](x, out, x.stride(0), columns, TILE=tile, num_warps=config.num_warps)


def _tune(x, out):
    space = search_space()
    try:
        return min(space, key=lambda config: triton.testing.do_bench(lambda: _launch(x, out, config)))
    except RuntimeError:  # where there is no GPU's clock, the first of the space is taken
        return space[0]


def softmax(x):
    """x (M, N) -> out (M, N). Tunes on the first call for a shape, then only launches."""
    if os.environ.get("DISABLE_AUTOTUNE", "0") == "1":
        return fixed_softmax(x)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    key = (tuple(x.shape), x.stride(0), x.dtype, str(x.device))
    if key not in _tuned:
        _tuned[key] = (_tune(x, out), softmax_kernel)
    config, _ = _tuned[key]
    _launch(x, out, config)
    return out
