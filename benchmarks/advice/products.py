"""Which tensor-core instructions products of small and large tiles compile to, by dtype and architecture. Needs no GPU.

python -m benchmarks.advice.products --json FILE    compile them all, and write what came out
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cuda.tile as ct
import torch
from benchmarks.recorded import header, write

from tilewright.compiler.assembling import assemble
from tilewright.compiler.cutile import lower
from tilewright.compiler.signature import signature_of
from tilewright.compiler.tools import compiler_version

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
TILES = ((16, 16, 16), (16, 64, 64), (32, 64, 64), (64, 16, 64), (64, 64, 64), (128, 128, 64), (128, 128, 128))
DTYPES = ("bfloat16", "float32", "float8_e4m3fn", "int8")
Size = ct.Constant[int]


@ct.kernel
def row_major(a, b, out, M: Size, N: Size, K: Size):
    total = ct.zeros((M, N), ct.int32 if a.dtype == ct.int8 else ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        total = ct.mma(ct.load(a, (0, k), (M, K)), ct.load(b, (k, 0), (K, N)), total)
    ct.store(out, (0, 0), total)


@ct.kernel
def column_major(a, b, out, M: Size, N: Size, K: Size):
    total = ct.zeros((M, N), ct.int32 if a.dtype == ct.int8 else ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        total = ct.mma(ct.load(a, (0, k), (M, K)), ct.load(b, (0, k), (N, K)).transpose(), total)
    ct.store(out, (0, 0), total)


@ct.kernel
def scaled(a, b, scale_a, scale_b, out, M: Size, N: Size, K: Size):
    total = ct.zeros((M, N), ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left, right = ct.load(a, (0, k), (M, K)), ct.load(b, (0, k), (N, K)).transpose()
        rows, columns = ct.load(scale_a, (0, k), (M, K // 32)), ct.load(scale_b, (0, k), (N, K // 32)).transpose()
        total = ct.mma_scaled(left, rows, right, columns, total)
    ct.store(out, (0, 0), total)


def compiled(kernel: Any, dtype: str, tile: tuple[int, int, int], arch: str) -> dict[str, Any]:
    """What the compiler makes of one product: its instructions and spills, or why it refuses."""
    a = torch.empty(512, 512, dtype=getattr(torch, dtype))
    out = torch.empty(512, 512, dtype=torch.int32 if dtype == "int8" else torch.float32)
    scales = (torch.empty(512, 16, dtype=torch.float8_e8m0fnu),) * 2 if kernel is scaled else ()
    made = assemble(lower(kernel, signature_of(kernel, (a, a, *scales, out, *tile)), arch), timeout_s=60)
    known = {"kernel": kernel._pyfunc.__name__, "dtype": dtype, "tile": list(tile), "arch": arch}
    if made.resources is None:
        return known | {"error": made.error.splitlines()[0]}
    return known | {"tensor_core": made.resources.tensor_core, "spill_bytes": made.resources.spill_bytes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    target = parser.parse_args().json
    wanted = [
        (kernel, dtype, tile, arch)
        for kernel in (row_major, column_major)
        for dtype in DTYPES
        for tile in TILES
        for arch in ARCHS
    ]
    wanted += [(scaled, "float8_e4m3fn", tile, arch) for tile in TILES[4:] for arch in ARCHS]
    with ThreadPoolExecutor(2) as threads:
        rows = list(threads.map(lambda one: compiled(*one), wanted))
    for row in rows:
        print(row)
    write(target, header("advice.products --json FILE") | {"compiler": compiler_version(), "rows": rows})


if __name__ == "__main__":
    main()
