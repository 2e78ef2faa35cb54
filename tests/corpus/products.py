"""Matrix products in the forms that libraries have them, dealt out over blocks, and of four-bit floats with scales."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Case, Example, integers, normal

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

EXAMPLES: tuple[Example, ...] = (
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


@ct.kernel
def stream_kernel(a, b, out, SHARE: Size, TM: Size, TN: Size, TK: Size):
    """Each block takes SHARE successive steps of the whole product's, wherever tiles begin and end."""
    per_tile = ct.num_tiles(a, axis=1, shape=(TM, TK))
    columns = ct.num_tiles(out, axis=1, shape=(TM, TN))
    end = min((ct.bid(0) + 1) * SHARE, per_tile * columns * ct.num_tiles(out, axis=0, shape=(TM, TN)))
    at = ct.bid(0) * SHARE
    while at < end:
        tile = at // per_tile
        row, column = tile // columns, tile % columns
        stop = min(end, (tile + 1) * per_tile)
        total = ct.zeros((TM, TN), ct.float32)
        for place in range(at, stop):
            step = place - tile * per_tile
            left = ct.load(a, index=(row, step), shape=(TM, TK), padding_mode=ZERO)
            right = ct.load(b, index=(step, column), shape=(TK, TN), padding_mode=ZERO)
            total = ct.mma(left, right, total)
        view = out.tiled_view((TM, TN))
        view.atomic_store_add((row, column), total)
        at = stop


def stream_k(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float32, device=a.device)
    steps = ct.cdiv(out.shape[0], M) * ct.cdiv(out.shape[1], N) * ct.cdiv(a.shape[1], K)
    share = ct.cdiv(steps, 4)
    blocks = ct.cdiv(steps, share)
    ct.launch(torch.cuda.current_stream(), (blocks,), stream_kernel, (a, b, out, share, M, N, K))
    return out


LONG = {"M": 20, "N": 40, "K": 90, "dtype": "float16"}
LOOSER = {"tolerance": (3e-2, 3e-2)}

EXAMPLES += (
    Example("stream_k", stream_k, factors, product, (LONG,), covers="stream-K, atomic add through a view", **LOOSER),
)


FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def _powers(generator: torch.Generator, *shape: int) -> torch.Tensor:
    """Powers of two from 1/4 to 4."""
    exponents = integers(generator, -2, 3, *shape, dtype=torch.float32)
    return torch.exp2(exponents).to(torch.float8_e8m0fnu)


@ct.kernel
def fp4_kernel(a, b, scale_a, scale_b, out, BLOCK: Size, TM: Size, TN: Size, TK: Size):
    """a and b hold two fp4 values a byte, the first in the low half."""
    row, column = ct.bid(0), ct.bid(1)
    total = ct.zeros((TM, TN), ct.float32)
    for step in range(ct.num_tiles(a, axis=1, shape=(TM, TK // 2))):
        packed_a = ct.load(a, index=(row, step), shape=(TM, TK // 2), padding_mode=ZERO)
        packed_b = ct.load(b, index=(column, step), shape=(TN, TK // 2), padding_mode=ZERO)
        left = ct.unpack_from_bytes(packed_a.reshape((-1,)), ct.float4_e2m1fn).reshape((TM, TK))
        right = ct.unpack_from_bytes(packed_b.reshape((-1,)), ct.float4_e2m1fn).reshape((TN, TK))
        rows = ct.load(scale_a, index=(row, step), shape=(TM, TK // BLOCK))
        columns = ct.load(scale_b, index=(column, step), shape=(TN, TK // BLOCK))
        total = ct.mma_scaled(left, rows, right.transpose(), columns.transpose(), total)
    ct.store(out, index=(row, column), tile=total)


def _matmul_fp4(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, block: int
) -> torch.Tensor:
    out = torch.empty(a.shape[0], b.shape[0], dtype=torch.float32, device=a.device)
    grid = (out.shape[0] // 32, out.shape[1] // 32)
    arguments = (a, b, scale_a, scale_b, out, block, 32, 32, 64)
    ct.launch(torch.cuda.current_stream(), grid, fp4_kernel, arguments)
    return out


def matmul_mxfp4(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    return _matmul_fp4(a, b, scale_a, scale_b, 32)


def fp4_inputs(case: Case, generator: torch.Generator) -> dict[str, Any]:
    rows, columns, depth, block = case["M"], case["N"], case["K"], case["block"]
    scales = {}
    for name, size in (("scale_a", rows), ("scale_b", columns)):
        if block == 32:
            scales[name] = _powers(generator, size, depth // 32)
        else:
            fine = 0.25 + torch.rand(size, depth // 16, generator=generator, device=generator.device)
            scales[name] = fine.to(torch.float8_e4m3fn)
    a = integers(generator, 0, 256, rows, depth // 2, dtype=torch.uint8)
    return {"a": a, "b": integers(generator, 0, 256, columns, depth // 2, dtype=torch.uint8), **scales}


def unpacked_fp4(packed: torch.Tensor) -> torch.Tensor:
    table = torch.tensor([*FP4, *(-value for value in FP4)], dtype=torch.float64, device=packed.device)
    pairs = torch.stack((packed & 15, packed >> 4), dim=-1)
    return table[pairs.long()].reshape(packed.shape[0], -1)


def fp4_reference(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    block = 2 * a.shape[1] // scale_a.shape[1]
    left = unpacked_fp4(a) * scale_a.repeat_interleave(block, 1)
    return left @ (unpacked_fp4(b) * scale_b.repeat_interleave(block, 1)).T


SCALED = {"M": 32, "N": 64, "K": 128}

EXAMPLES += (
    Example(
        "matmul_mxfp4",
        matmul_mxfp4,
        fp4_inputs,
        fp4_reference,
        ({**SCALED, "block": 32},),
        (1e-3, 1e-4),
        "sm_100",
        "fp4 GEMM with e8m0 scales",
    ),
)
