"""Matrix products in the forms that libraries have them."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Case, Example, normal

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
M, N, K = 16, 32, 16


def tile_product(a, b, row, column, TM, TN, TK):
    """Tile (row, column) of a @ b in float32; for kernels to call."""
    total = ct.zeros((TM, TN), ct.float32)
    for step in range(ct.num_tiles(a, axis=1, shape=(TM, TK))):
        left = ct.load(a, index=(row, step), shape=(TM, TK), padding_mode=ZERO)
        right = ct.load(b, index=(step, column), shape=(TK, TN), padding_mode=ZERO)
        total = ct.mma(left, right, total)
    return total


def swizzled(block, rows, columns, GROUP):
    """The output tile of a block, in an order that visits GROUP rows of tiles column by column."""
    per_group = GROUP * columns
    first = block // per_group * GROUP
    height = min(rows - first, GROUP)
    within = block % per_group
    return first + within % height, within // height


@ct.kernel
def persistent_kernel(a, b, out, TM: Size, TN: Size, TK: Size, GROUP: Size):
    rows, columns = ct.cdiv(out.shape[0], TM), ct.cdiv(out.shape[1], TN)
    for tile in range(ct.bid(0), rows * columns, ct.num_blocks(0)):
        row, column = swizzled(tile, rows, columns, GROUP)
        ct.store(out, index=(row, column), tile=tile_product(a, b, row, column, TM, TN, TK).astype(out.dtype))


def matmul_persistent(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    tiles = ct.cdiv(out.shape[0], M) * ct.cdiv(out.shape[1], N)
    blocks = min(torch.cuda.get_device_properties(a.device).multi_processor_count // 32, tiles)
    ct.launch(torch.cuda.current_stream(), (blocks,), persistent_kernel, (a, b, out, M, N, K, 2))
    return out


@ct.kernel
def batched_kernel(a, b, out, TB: Size, TM: Size, TN: Size, TK: Size):
    batch, row, column = ct.bid(0), ct.bid(1), ct.bid(2)
    total = ct.zeros((TB, TM, TN), ct.float32)
    for step in range(ct.num_tiles(a, axis=2, shape=(TB, TM, TK))):
        left = ct.load(a, index=(batch, row, step), shape=(TB, TM, TK), padding_mode=ZERO)
        right = ct.load(b, index=(batch, step, column), shape=(TB, TK, TN), padding_mode=ZERO)
        total = ct.mma(left, right, total)
    ct.store(out, index=(batch, row, column), tile=total.astype(out.dtype))


def matmul_batched(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = torch.empty(a.shape[0], a.shape[1], b.shape[2], dtype=a.dtype, device=a.device)
    grid = (ct.cdiv(a.shape[0], 2), ct.cdiv(a.shape[1], M), ct.cdiv(b.shape[2], N))
    ct.launch(torch.cuda.current_stream(), grid, batched_kernel, (a, b, out, 2, M, N, K))
    return out


@ct.kernel
def gated_kernel(x, gate, up, out, TM: Size, TN: Size, TK: Size):
    row, column = ct.bid(0), ct.bid(1)
    g = ct.zeros((TM, TN), ct.float32)
    u = ct.zeros((TM, TN), ct.float32)
    for step in range(ct.num_tiles(x, axis=1, shape=(TM, TK))):
        left = ct.load(x, index=(row, step), shape=(TM, TK), padding_mode=ZERO)
        g = ct.mma(left, ct.load(gate, index=(step, column), shape=(TK, TN), padding_mode=ZERO), g)
        u = ct.mma(left, ct.load(up, index=(step, column), shape=(TK, TN), padding_mode=ZERO), u)
    ct.store(out, index=(row, column), tile=(g / (1.0 + ct.exp(-g)) * u).astype(out.dtype))


def linear_gated(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape[0], gate.shape[1], dtype=x.dtype, device=x.device)
    grid = (ct.cdiv(out.shape[0], M), ct.cdiv(out.shape[1], N))
    ct.launch(torch.cuda.current_stream(), grid, gated_kernel, (x, gate, up, out, M, N, K))
    return out


def factors(case: Case, generator: torch.Generator) -> dict[str, Any]:
    batch = (case["B"],) if "B" in case else ()
    a = normal(case, generator, *batch, case["M"], case["K"])
    return {"a": a, "b": normal(case, generator, *batch, case["K"], case["N"])}


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


RAGGED = {"M": 37, "N": 50, "K": 40}
HALF = {"M": 32, "N": 64, "K": 32, "dtype": "float16"}
LOOSE = {"tolerance": (2e-2, 2e-2)}

EXAMPLES = (
    Example(
        "matmul_persistent",
        matmul_persistent,
        factors,
        product,
        ({**HALF, **RAGGED}, HALF),
        covers="T4, persistent matmul",
        **LOOSE,
    ),
    Example(
        "matmul_batched", matmul_batched, factors, product, ({**HALF, **RAGGED, "B": 3},), covers="batched", **LOOSE
    ),
    Example(
        "linear_gated",
        linear_gated,
        lambda case, generator: {
            "x": normal(case, generator, case["M"], case["K"]),
            "gate": normal(case, generator, case["K"], case["N"], scale=0.2),
            "up": normal(case, generator, case["K"], case["N"], scale=0.2),
        },
        lambda x, gate, up: torch.nn.functional.silu(x @ gate) * (x @ up),
        ({**HALF, **RAGGED},),
        covers="T9, two products fused",
        **LOOSE,
    ),
)
