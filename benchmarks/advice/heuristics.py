"""How good the tiles are that NVIDIA's own model of matrix products, nvMatmulHeuristics, suggests for Hopper.

python -m benchmarks.advice.heuristics FILE    anywhere, after `pip install nvidia-matmul-heuristics==0.1.0.27`

The library knows tiles for CUTLASS. Of cuTile's searches that `searches.json.gz` records, this takes the best config
with one of the tiles, whatever its other parameters, and compares it with the best config of the whole space. Tiles
with an extent that is no power of two are left out, since cuTile refuses them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from benchmarks.kernels.searched.spaces import BY_NAME
from benchmarks.recorded import header, read, write

PARTS = ("matmul wide", "matmul odd wide", "matmul flat wide", "matmul unaligned wide")
ASKED = 8
RECORDED = Path(__file__).parents[1] / "evidence" / "searches.json.gz"


def suggested(m: int, n: int, k: int) -> list[tuple[int, int, int]]:
    """Tiles (M, N, K) for a product in bfloat16 on an H200, the most promising first."""
    import nvMatmulHeuristics as library  # type: ignore[import-not-found, import-untyped, unused-ignore]

    asked = library.NvMatmulHeuristicsInterfaceEx(
        backend=library.NvMatmulHeuristicsTarget.CUTLASS3,
        flags=library.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
        gpu=library.NvMatmulHeuristicsNvidiaGpu.H200_SXM,
    )
    problem = asked.makeNvMatmulHeuristicsProblem(m, n, k, library.NvMatmulHeuristicsMatmulLayout.NN_ROW_MAJOR)
    kernels = [one["kernel"] for one in asked.get(problem, ASKED, precision="BBS")]
    tiles = dict.fromkeys((one.cta_tile_m, one.cta_tile_n, one.cta_tile_k) for one in kernels)
    return [tile for tile in tiles if all(size & (size - 1) == 0 for size in tile)]


def main() -> None:
    searches, lines = read(RECORDED)["parts"], []
    for name in PARTS:
        times: dict[tuple[int, int, int], float] = {}
        for config, ms, *_ in searches[name]["theirs"]["successes"]:
            if config:  # the original has no names of its own
                tile = config["TILE_M"], config["TILE_N"], config["TILE_K"]
                times[tile] = min(ms, times.get(tile, ms))
        case = BY_NAME[name].case
        tiles = suggested(case["M"], case["N"], case["K"])
        best = min(times.values())
        shares = [round(best / times[tile], 4) if tile in times else None for tile in tiles]
        line: dict[str, Any] = {"part": name, "case": case, "tiles": tiles, "shares": shares}
        lines.append(line | {"share": max(share for share in shares if share is not None)})
        print(lines[-1])
    write(Path(sys.argv[1]), header("advice.heuristics FILE") | {"lines": lines})


if __name__ == "__main__":
    main()
