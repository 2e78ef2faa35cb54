"""Products of four-bit floats with scales."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Case, Example, integers

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
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

EXAMPLES = (
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
