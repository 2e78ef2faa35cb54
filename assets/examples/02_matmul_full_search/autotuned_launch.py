"""Matrix product in cuTile, tuned: the kernel of fixed_launch.py with tile sizes and hints searched once for a shape.

A compute-bound kernel has several knobs that act together: the tile decides how often an input is read again, the
worker warps whether its accumulator fits in registers, CTA pairs whether neighbours share loads.
"""

import os
from types import SimpleNamespace

import cuda.tile as ct
import torch
from cuda.tile.tune import exhaustive_search
from fixed_launch import TILE_K, TILE_M, TILE_N, matmul_kernel

ORIGINAL = SimpleNamespace(tile=(TILE_M, TILE_N, TILE_K), hints={})
_tuned = {}


def search_space():
    """At most 30 configs, the original first. The largest tiles go with 8 worker warps: with 4 they spill."""
    configs = [ORIGINAL]
    for tile in ((128, 128, 32), (128, 128, 64), (64, 128, 64), (128, 64, 64)):
        configs += [SimpleNamespace(tile=tile, hints=hints) for hints in ({}, {"occupancy": 2})]
    for tile in ((128, 256, 64), (256, 128, 64), (128, 256, 128), (256, 128, 128)):
        configs.append(SimpleNamespace(tile=tile, hints={"num_worker_warps": 8}))
    major, _ = torch.cuda.get_device_capability()
    if major >= 9:  # CTA pairs came with sm_90. On sm_100, a launch with both hints was seen to fail
        pair = {"num_ctas": 2} | ({"occupancy": 2} if major == 9 else {})
        for tile in ((128, 256, 64), (256, 128, 64), (256, 256, 64)):
            configs.append(SimpleNamespace(tile=tile, hints=pair))
    return configs


def _grid(config, out):
    return ct.cdiv(out.shape[0], config.tile[0]), ct.cdiv(out.shape[1], config.tile[1])


def matmul(a, b):
    """a (M, K) @ b (K, N) of one dtype -> out (M, N). Tunes on the first call for a shape, then only launches."""
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    stream = torch.cuda.current_stream()
    if os.environ.get("DISABLE_AUTOTUNE", "0") == "1":
        ct.launch(stream, _grid(ORIGINAL, out), matmul_kernel, (a, b, out, *ORIGINAL.tile))
        return out
    key = (tuple(a.shape), tuple(b.shape), a.dtype, str(a.device))
    if key not in _tuned:
        found = exhaustive_search(
            search_space(),
            stream,
            grid_fn=lambda config: _grid(config, out),
            kernel=matmul_kernel,
            args_fn=lambda config: (a, b, out, *config.tile),
            hints_fn=lambda config: config.hints,
            quiet=True,
        )
        best = found.best.config
        _tuned[key] = (best, matmul_kernel.replace_hints(**best.hints))  # keep the kernel: it holds the compiled code
    config, kernel = _tuned[key]
    ct.launch(stream, _grid(config, out), kernel, (a, b, out, *config.tile))
    return out
