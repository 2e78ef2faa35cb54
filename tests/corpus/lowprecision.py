"""Eight- and four-bit kernels: scaled products, quantisation and its inverse."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Case, Example, integers, normal

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@ct.kernel
def fp8_kernel(a, b, out, scale, TM: Size, TN: Size, TK: Size):
    row, column = ct.bid(0), ct.bid(1)
    total = ct.zeros((TM, TN), ct.float32)
    for step in range(ct.num_tiles(a, axis=1, shape=(TM, TK))):
        left = ct.load(a, index=(row, step), shape=(TM, TK), padding_mode=ZERO)
        right = ct.load(b, index=(column, step), shape=(TN, TK), padding_mode=ZERO)
        total = ct.mma(left, right.transpose(), total)
    ct.store(out, index=(row, column), tile=(total * scale).astype(out.dtype))


def matmul_fp8(a: torch.Tensor, b: torch.Tensor, scale: float) -> torch.Tensor:
    """a (M, K) @ b (N, K).T * scale in bfloat16."""
    out = torch.empty(a.shape[0], b.shape[0], dtype=torch.bfloat16, device=a.device)
    grid = (ct.cdiv(out.shape[0], 16), ct.cdiv(out.shape[1], 32))
    ct.launch(torch.cuda.current_stream(), grid, fp8_kernel, (a, b, out, scale, 16, 32, 32))
    return out


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


@ct.kernel
def quantize_kernel(x, out, scales, T: Size):
    """Each row to int8 with the scale that its largest element asks for."""
    row = ct.bid(0)
    a = ct.load(x, index=(row, 0), shape=(1, T), padding_mode=ZERO).astype(ct.float32)
    scale = ct.maximum(ct.max(ct.abs(a), axis=1, keepdims=True), 1e-8) / 127.0
    q = ct.floor(a / scale + 0.5)
    q = ct.minimum(ct.maximum(q, -127.0), 127.0)
    ct.store(out, index=(row, 0), tile=q.astype(ct.int8))
    ct.store(scales, index=(row,), tile=scale.reshape((1,)))


def quantize_int8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows, columns = x.shape
    out = torch.empty(rows, columns, dtype=torch.int8, device=x.device)
    scales = torch.empty(rows, dtype=torch.float32, device=x.device)
    tile = 1 << (columns - 1).bit_length()
    ct.launch(torch.cuda.current_stream(), (rows,), quantize_kernel, (x, out, scales, tile))
    return out, scales


def quantize_inputs(case: Case, generator: torch.Generator) -> dict[str, Any]:
    """Whole numbers with 127 among them in each row, so that no element lies between two steps."""
    x = integers(generator, -126, 127, 4, 50, dtype=torch.float32)
    x[:, 7] = 127.0
    return {"x": x * 0.5}


@ct.kernel
def int4_kernel(x, packed, scales, zeros, out, GROUP: Size, TM: Size, TN: Size):
    """x (M, K) @ (w - zero) * scale, where a byte of `packed` (K / 2, N) holds w[2k] low and w[2k + 1] high."""
    row, column = ct.bid(0), ct.bid(1)
    total = ct.zeros((TM, TN), ct.float32)
    for group in range(scales.shape[0]):
        a = ct.load(x, index=(row, group), shape=(TM, GROUP), padding_mode=ZERO)
        pairs = ct.load(packed, index=(group, column), shape=(GROUP // 2, TN), padding_mode=ZERO)
        both = ct.cat((pairs[:, None, :] & 15, pairs[:, None, :] >> 4), 1).reshape((GROUP, TN))
        zero = ct.load(zeros, index=(group, column), shape=(1, TN), padding_mode=ZERO)
        scale = ct.load(scales, index=(group, column), shape=(1, TN), padding_mode=ZERO)
        weight = (both.astype(ct.float16) - zero) * scale
        total = ct.mma(a, weight, total)
    ct.store(out, index=(row, column), tile=total.astype(out.dtype))


def matmul_int4(x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape[0], packed.shape[1], dtype=x.dtype, device=x.device)
    grid = (ct.cdiv(out.shape[0], 16), ct.cdiv(out.shape[1], 32))
    arguments = (x, packed, scales, zeros, out, 32, 16, 32)
    ct.launch(torch.cuda.current_stream(), grid, int4_kernel, arguments)
    return out


def int4_inputs(case: Case, generator: torch.Generator) -> dict[str, Any]:
    groups, columns = 3, 40
    return {
        "x": normal(case, generator, 20, 32 * groups),
        "packed": integers(generator, 0, 256, 16 * groups, columns, dtype=torch.uint8),
        "scales": torch.exp2(integers(generator, -4, -1, groups, columns, dtype=torch.float32)).half(),
        "zeros": integers(generator, 0, 16, groups, columns, dtype=torch.float16),
    }


def int4_reference(x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor) -> torch.Tensor:
    weight = torch.stack((packed & 15, packed >> 4), dim=1).reshape(x.shape[1], -1).double()
    return x @ ((weight - zeros.repeat_interleave(32, 0)) * scales.repeat_interleave(32, 0))


@ct.kernel
def narrow_kernel(x, out, scale, T: Size):
    i = ct.bid(0)
    a = ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO).astype(ct.float32) * scale
    ct.store(out, index=(i,), tile=ct.minimum(ct.maximum(a, -448.0), 448.0).astype(out.dtype))


def narrow_to_fp8(x: torch.Tensor, scale: float) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], 64),), narrow_kernel, (x, out, scale, 64))
    return out


SCALED = {"M": 32, "N": 64, "K": 128}
RAGGED = {"M": 21, "N": 45, "K": 70}

EXAMPLES = (
    Example(
        "matmul_fp8",
        matmul_fp8,
        lambda case, generator: {
            "a": normal(case, generator, case["M"], case["K"]),
            "b": normal(case, generator, case["N"], case["K"]),
            "scale": 0.125,
        },
        lambda a, b, scale: a @ b.T * scale,
        ({**RAGGED, "dtype": "float8_e4m3fn"}, {**RAGGED, "dtype": "float8_e5m2"}),
        covers="T6, fp8 GEMM",
    ),
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
    Example(
        "quantize_int8",
        quantize_int8,
        quantize_inputs,
        lambda x: ((x * 2).round(), torch.full((x.shape[0],), 0.5, dtype=x.dtype, device=x.device)),
        ({},),
        covers="quantise to int8",
    ),
    Example(
        "matmul_int4",
        matmul_int4,
        int4_inputs,
        int4_reference,
        ({"dtype": "float16"},),
        (5e-2, 2e-2),
        covers="weights of four bits unpacked by shifts",
    ),
    Example(
        "narrow_to_fp8",
        narrow_to_fp8,
        lambda case, generator: {"x": normal(case, generator, 100, scale=30.0), "scale": 2.0},
        lambda x, scale: (x * scale).clamp(-448, 448),
        ({}, {"dtype": "bfloat16"}),
        covers="casts to fp8",
    ),
)
