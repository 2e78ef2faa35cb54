"""Every treatment of the playbook, before and after, compiled: what each changes in the machine code. Needs no GPU.

python -m benchmarks.advice.treatments --json FILE    compile all pairs for four architectures, and write what came out
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cuda.tile as ct
import torch
from benchmarks.recorded import header, write

from tilewright.compiler.assembling import assemble
from tilewright.compiler.compilation import Compilation
from tilewright.compiler.cutile import lower
from tilewright.compiler.findings import Treatment, findings
from tilewright.compiler.signature import signature_of
from tilewright.compiler.tools import compiler_version

ARCHS = ("sm_80", "sm_90", "sm_100", "sm_120")
Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def matmul(a, b, out, M: Size, N: Size, K: Size):
    i, j = ct.bid(0), ct.bid(1)
    total = ct.zeros((M, N), ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, index=(i, k), shape=(M, K), padding_mode=ZERO)
        right = ct.load(b, index=(k, j), shape=(K, N), padding_mode=ZERO)
        total = ct.mma(left, right, total)
    ct.store(out, index=(i, j), tile=total.astype(out.dtype))


@ct.kernel
def matmul_tf32(a, b, out, M: Size, N: Size, K: Size):
    i, j = ct.bid(0), ct.bid(1)
    total = ct.zeros((M, N), ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, index=(i, k), shape=(M, K), padding_mode=ZERO).astype(ct.tfloat32)
        right = ct.load(b, index=(k, j), shape=(K, N), padding_mode=ZERO).astype(ct.tfloat32)
        total = ct.mma(left, right, total)
    ct.store(out, index=(i, j), tile=total.astype(out.dtype))


@ct.kernel
def softmax(x, out, T: Size):
    row = ct.bid(0)
    a = ct.load(x, index=(row, 0), shape=(1, T), padding_mode=ct.PaddingMode.NEG_INF)
    e = ct.exp(a - ct.max(a, axis=1, keepdims=True))
    ct.store(out, index=(row, 0), tile=e / ct.sum(e, axis=1, keepdims=True))


@ct.kernel
def softmax_masked(x, out, T: Size):
    row = ct.bid(0)
    a = ct.load(x, index=(row, 0), shape=(1, T), padding_mode=ZERO)
    a = ct.where(ct.arange(T, dtype=ct.int32)[None, :] < x.shape[1], a, -math.inf)
    e = ct.exp(a - ct.max(a, axis=1, keepdims=True))
    ct.store(out, index=(row, 0), tile=e / ct.sum(e, axis=1, keepdims=True))


@ct.kernel
def softmax_reciprocal(x, out, T: Size):
    row = ct.bid(0)
    a = ct.load(x, index=(row, 0), shape=(1, T), padding_mode=ct.PaddingMode.NEG_INF)
    e = ct.exp(a - ct.max(a, axis=1, keepdims=True))
    ct.store(out, index=(row, 0), tile=e * (1.0 / ct.sum(e, axis=1, keepdims=True)))


@ct.kernel
def softmax_approximate(x, out, T: Size):
    row = ct.bid(0)
    a = ct.load(x, index=(row, 0), shape=(1, T), padding_mode=ct.PaddingMode.NEG_INF)
    e = ct.exp(a - ct.max(a, axis=1, keepdims=True))
    total = ct.sum(e, axis=1, keepdims=True)
    ct.store(out, index=(row, 0), tile=ct.truediv(e, total, rounding_mode=ct.RoundingMode.APPROX))


@ct.kernel
def matmul_by_gather(a, b, out, M: Size, N: Size, K: Size):
    i, j = ct.bid(0), ct.bid(1)
    rows = i * M + ct.arange(M, dtype=ct.int32)
    columns = j * N + ct.arange(N, dtype=ct.int32)
    total = ct.zeros((M, N), ct.float32)
    for k in range(ct.cdiv(a.shape[1], K)):
        inner = k * K + ct.arange(K, dtype=ct.int32)
        left = ct.gather(a, (rows[:, None], inner[None, :]), padding_value=0)
        right = ct.gather(b, (inner[:, None], columns[None, :]), padding_value=0)
        total = ct.mma(left, right, total)
    ct.store(out, index=(i, j), tile=total.astype(out.dtype))


@ct.kernel
def matmul_int8(a, b, out, M: Size, N: Size, K: Size):
    i, j = ct.bid(0), ct.bid(1)
    total = ct.zeros((M, N), ct.int32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, index=(i, k), shape=(M, K), padding_mode=ZERO)
        total = ct.mma(left, ct.load(b, index=(k, j), shape=(K, N), padding_mode=ZERO), total)
    ct.store(out, index=(i, j), tile=total)


@ct.kernel
def matmul_int8_transposed(a, b, out, M: Size, N: Size, K: Size):
    i, j = ct.bid(0), ct.bid(1)
    total = ct.zeros((M, N), ct.int32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, index=(i, k), shape=(M, K), padding_mode=ZERO)
        right = ct.load(b, index=(j, k), shape=(N, K), padding_mode=ZERO)
        total = ct.mma(left, right.transpose(), total)
    ct.store(out, index=(i, j), tile=total)


@dataclass(frozen=True)
class Pair:
    """A kernel with its arguments that shows a finding, and the same after the treatment."""

    treatment: Treatment
    name: str
    before: tuple[Any, Callable[[], tuple[Any, ...]]]
    after: tuple[Any, Callable[[], tuple[Any, ...]]]


def _half(columns: int = 1024, room: int = 0) -> torch.Tensor:
    return torch.empty(1024, columns + room, dtype=torch.bfloat16)[:, :columns]


def _floats() -> torch.Tensor:
    return torch.empty(1024, 1024)


def _bytes() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    a = torch.empty(1024, 1024, dtype=torch.int8)
    return a, a, torch.empty(1024, 1024, dtype=torch.int32)


PAIRS = (
    Pair(
        Treatment.TILE_SHAPE, "bf16 matmul (64, 64, 64) against (128, 128, 64)",
        (matmul, lambda: (*[_half()] * 3, 64, 64, 64)), (matmul, lambda: (*[_half()] * 3, 128, 128, 64)),
    ),
    Pair(
        Treatment.MORE_WORKER_WARPS, "bf16 matmul (128, 256, 64)",
        (matmul, lambda: (*[_half()] * 3, 128, 256, 64)),
        (matmul.replace_hints(num_worker_warps=8), lambda: (*[_half()] * 3, 128, 256, 64)),
    ),
    Pair(
        Treatment.TENSOR_CORE_DTYPE, "float32 matmul (64, 64, 32)",
        (matmul, lambda: (*[_floats()] * 3, 64, 64, 32)), (matmul_tf32, lambda: (*[_floats()] * 3, 64, 64, 32)),
    ),
    Pair(
        Treatment.EIGHT_BIT_OPERANDS, "int8 matmul (128, 128, 64), b as (K, N) against (N, K)",
        (matmul_int8, lambda: (*_bytes(), 128, 128, 64)), (matmul_int8_transposed, lambda: (*_bytes(), 128, 128, 64)),
    ),
    Pair(
        Treatment.ZERO_PADDING, "softmax of rows of 1024",
        (softmax, lambda: (_floats(), _floats(), 1024)), (softmax_masked, lambda: (_floats(), _floats(), 1024)),
    ),
    Pair(
        Treatment.ALIGN_16_BYTES, "bf16 matmul (64, 64, 64), rows of 1001",
        (matmul, lambda: (*[_half(1001)] * 3, 64, 64, 64)), (matmul, lambda: (*[_half(1001, 7)] * 3, 64, 64, 64)),
    ),
    Pair(
        Treatment.WIDER_ACCESS, "bf16 matmul (64, 64, 64), rows of 1001 against 1008",
        (matmul, lambda: (*[_half(1001)] * 3, 64, 64, 64)), (matmul, lambda: (*[_half(1008)] * 3, 64, 64, 64)),
    ),
    Pair(
        Treatment.SMALLER_TILES, "bf16 matmul (256, 256, 64) against (128, 256, 64), 8 worker warps",
        (matmul.replace_hints(num_worker_warps=8), lambda: (*[_half()] * 3, 256, 256, 64)),
        (matmul.replace_hints(num_worker_warps=8), lambda: (*[_half()] * 3, 128, 256, 64)),
    ),
    Pair(
        Treatment.TILES_FOR_GATHERS, "bf16 matmul (64, 64, 64)",
        (matmul_by_gather, lambda: (*[_half()] * 3, 64, 64, 64)), (matmul, lambda: (*[_half()] * 3, 64, 64, 64)),
    ),
    Pair(
        Treatment.RAISE_OCCUPANCY, "softmax of rows of 1024",
        (softmax, lambda: (_floats(), _floats(), 1024)),
        (softmax.replace_hints(occupancy=4), lambda: (_floats(), _floats(), 1024)),
    ),
    Pair(
        Treatment.FEWER_DIVISIONS, "softmax of rows of 1024, times the reciprocal",
        (softmax, lambda: (_floats(), _floats(), 1024)), (softmax_reciprocal, lambda: (_floats(), _floats(), 1024)),
    ),
    Pair(
        Treatment.FEWER_DIVISIONS, "softmax of rows of 1024, divided approximately",
        (softmax, lambda: (_floats(), _floats(), 1024)), (softmax_approximate, lambda: (_floats(), _floats(), 1024)),
    ),
)  # fmt: skip


def compiled(side: tuple[Any, Callable[[], tuple[Any, ...]]], arch: str) -> Compilation:
    kernel, arguments = side
    return assemble(lower(kernel, signature_of(kernel, arguments()), arch), timeout_s=60)


def described(made: Compilation) -> dict[str, Any]:
    """What a compilation shows, without its texts."""
    return {
        "hints": made.hints,
        "headline": made.headline,
        "resources": made.resources.model_dump() if made.resources else None,
        "calls": sum(line.calls for line in made.mix),
        "findings": [str(finding) for finding in findings(made)],
        "seconds": round(made.seconds, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    target = parser.parse_args().json
    rows = []
    with ThreadPoolExecutor() as threads:
        for pair in PAIRS:
            for arch, before, after in zip(
                ARCHS,
                threads.map(lambda arch, pair=pair: compiled(pair.before, arch), ARCHS),
                threads.map(lambda arch, pair=pair: compiled(pair.after, arch), ARCHS),
                strict=True,
            ):
                print(f"{pair.treatment:18} {pair.name} on {arch}\n  {before.headline}\n  {after.headline}")
                sides = {"before": described(before), "after": described(after)}
                rows.append({"treatment": pair.treatment, "name": pair.name, "arch": arch} | sides)
    write(target, header("advice.treatments --json FILE") | {"compiler": compiler_version(), "rows": rows})


if __name__ == "__main__":
    main()
