"""Tiles for a matrix product by NVIDIA's own model of products, nvMatmulHeuristics, where that is installed.

The library (`pip install nvidia-matmul-heuristics`, https://docs.nvidia.com/cuda/nvidia-matmul-heuristics) is closed
code, so that it is asked in a process of its own: `python -I -m tilewright.autotune.heuristics M N K DTYPE ARCH`.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence

from tilewright.evaluation.results import Shaped

Tile = tuple[int, int, int]
PACKAGE = "nvMatmulHeuristics"
TIMEOUT_S = 20.0
ASKED, TAKEN = 8, 3
"""How many configs the library is asked for, and how many tiles a space takes of them: each stands for some configs."""
PRECISIONS = {"bfloat16": "BBS", "float16": "HSS", "float8_e4m3fn": "OOS"}
"""The library's letters for operands, result and sums."""
GPUS = {"sm_80": "A100_SXM_80GB", "sm_90": "H200_SXM", "sm_100": "B200"}


def suggested(tensors: Sequence[Shaped], arch: str) -> list[Tile]:
    """Tiles (M, N, K), the most promising first, for the product of a call's input tensors. None where the library is
    not installed, does not know the dtype or architecture, or fails, or where no two matrices can be multiplied."""
    found = _product(tensors)
    if found is None or found[3] not in PRECISIONS or arch not in GPUS or importlib.util.find_spec(PACKAGE) is None:
        return []
    command = [sys.executable, "-I", "-m", __name__, *map(str, found), arch]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
        tiles = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, OSError, ValueError, IndexError):
        return []
    return [(int(m), int(n), int(k)) for m, n, k in tiles][:TAKEN]


def _product(tensors: Sequence[Shaped]) -> tuple[int, int, int, str] | None:
    """M, N, K and the operands' dtype of the first two matrices that share an extent as a product's do."""
    matrices = [(one.dtype, one.shape[0], one.shape[1]) for one in tensors if len(one.shape) == 2]
    for number, (dtype, m, k) in enumerate(matrices):
        for other, rows, columns in matrices[:number] + matrices[number + 1 :]:
            if dtype == other and k in (rows, columns):
                return m, columns if k == rows else rows, k, dtype
    return None


def main(arguments: Sequence[str]) -> None:
    """Print the tiles as JSON."""
    import nvMatmulHeuristics as library  # type: ignore[import-not-found, import-untyped, unused-ignore]

    m, n, k = map(int, arguments[:3])
    dtype, arch = arguments[3:]
    asked = library.NvMatmulHeuristicsInterfaceEx(
        backend=library.NvMatmulHeuristicsTarget.TRITON
        if arch == "sm_80"
        else library.NvMatmulHeuristicsTarget.CUTLASS3,
        flags=library.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
        gpu=library.NvMatmulHeuristicsNvidiaGpu[GPUS[arch]],
    )
    problem = asked.makeNvMatmulHeuristicsProblem(m, n, k, library.NvMatmulHeuristicsMatmulLayout.NN_ROW_MAJOR)
    configs = [one["kernel"] for one in asked.get(problem, ASKED, precision=PRECISIONS[dtype])]
    tiles = dict.fromkeys((one.cta_tile_m, one.cta_tile_n, one.cta_tile_k) for one in configs)
    print(json.dumps([tile for tile in tiles if all(size & (size - 1) == 0 for size in tile)]))


if __name__ == "__main__":
    main(sys.argv[1:])
