"""Kernels whose outputs each depend on few inputs at the same place."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Case, Example, normal

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
TILE = 64


@ct.kernel
def axpy_kernel(x, y, out, factor, T: Size):
    i = ct.bid(0)
    a = ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO)
    b = ct.load(y, index=(i,), shape=(T,), padding_mode=ZERO)
    ct.store(out, index=(i,), tile=(a * factor + b).astype(out.dtype))


def axpy(x: torch.Tensor, y: torch.Tensor, factor: float) -> torch.Tensor:
    out = torch.empty_like(x)
    grid = (ct.cdiv(x.shape[0], TILE),)
    ct.launch(torch.cuda.current_stream(), grid, axpy_kernel, (x, y, out, factor, TILE))
    return out


@ct.kernel
def rope_kernel(x, cos, sin, T: Size, HALF: Size):
    head, step = ct.bid(0), ct.bid(1)
    c = ct.load(cos, index=(step, 0), shape=(T, HALF), padding_mode=ZERO).astype(ct.float32)[None]
    s = ct.load(sin, index=(step, 0), shape=(T, HALF), padding_mode=ZERO).astype(ct.float32)[None]
    first = ct.load(x, index=(head, step, 0), shape=(1, T, HALF), padding_mode=ZERO).astype(ct.float32)
    second = ct.load(x, index=(head, step, 1), shape=(1, T, HALF), padding_mode=ZERO).astype(ct.float32)
    ct.store(x, index=(head, step, 0), tile=(first * c - second * s).astype(x.dtype))
    ct.store(x, index=(head, step, 1), tile=(second * c + first * s).astype(x.dtype))


def rope_in_place(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    heads, length, width = x.shape
    grid = (heads, ct.cdiv(length, 16))
    ct.launch(torch.cuda.current_stream(), grid, rope_kernel, (x, cos, sin, 16, width // 2))
    return x


def rope_inputs(case: Case, generator: torch.Generator) -> dict[str, Any]:
    length, width = case["S"], case["D"]
    angles = torch.arange(length)[:, None] * 100.0 ** (-torch.arange(width // 2) / width)
    x = normal(case, generator, case["H"], length, width)
    cos, sin = (table.to(device=generator.device, dtype=x.dtype) for table in (angles.cos(), angles.sin()))
    return {"x": x, "cos": cos, "sin": sin}


def rope_reference(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


@ct.kernel
def functions_kernel(x, y, out, T: Size):
    i = ct.bid(0)
    a = ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO)
    b = ct.load(y, index=(i,), shape=(T,), padding_mode=ZERO)
    positive = ct.abs(b) + 0.5
    value = ct.sin(a) * ct.cos(b) + ct.tanh(a) - ct.atan2(a, b) + ct.log(positive) * ct.log2(positive)
    value = value + ct.exp2(-ct.abs(a)) + ct.sinh(a * 0.5) - ct.cosh(b * 0.5) + ct.tan(a * 0.25)
    value = value + ct.floor(a * 3.0) - ct.ceil(b * 3.0) + ct.rsqrt(positive) + positive**a
    value = value + a // positive + ct.minimum(a, b) * ct.maximum(a, -b)
    ct.store(out, index=(i,), tile=ct.where(ct.isnan(value), 0.0, value))


def functions(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), functions_kernel, (x, y, out, TILE))
    return out


def functions_reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    positive = y.abs() + 0.5
    value = x.sin() * y.cos() + x.tanh() - torch.atan2(x, y) + positive.log() * positive.log2()
    value = value + torch.exp2(-x.abs()) + (x * 0.5).sinh() - (y * 0.5).cosh() + (x * 0.25).tan()
    value = value + (x * 3).floor() - (y * 3).ceil() + positive.rsqrt() + positive**x
    return value + torch.floor(x / positive) + torch.minimum(x, y) * torch.maximum(x, -y)


@ct.kernel
def dropout_kernel(x, out, seed, keep, T: Size):
    i = ct.bid(0)
    places = i * T + ct.arange(T, dtype=ct.int32)
    c0 = places.astype(ct.uint32)
    c1 = ct.zeros((T,), ct.uint32)
    k0 = ct.full((T,), seed, ct.uint32)
    k1 = ct.full((T,), 0x1BD11BDA, ct.uint32)
    for _ in ct.static_iter(range(7)):  # rounds of a 2 x 32 bit counter-based generator
        wide = c0.astype(ct.uint64) * 0xD256D193
        high = (wide >> 32).astype(ct.uint32)
        c0, c1 = high ^ k0 ^ c1, wide.astype(ct.uint32)
        k0 = k0 + 0x9E3779B9
    uniform = ((c0 ^ k1) >> 8).astype(ct.float32) * (1.0 / 16777216.0)
    a = ct.gather(x, places).astype(ct.float32)
    ct.scatter(out, places, ct.where(uniform < keep, a / keep, 0.0).astype(out.dtype))


def dropout(x: torch.Tensor, seed: int, keep: float) -> torch.Tensor:
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), dropout_kernel, (x, out, seed, keep, TILE))
    return out


def dropout_reference(x: torch.Tensor, seed: int, keep: float) -> torch.Tensor:
    low = 0xFFFFFFFF
    c0, c1 = torch.arange(x.shape[0], device=x.device), torch.zeros(x.shape[0], dtype=torch.int64, device=x.device)
    key = seed
    for _ in range(7):
        wide = c0 * 0xD256D193
        c0, c1 = ((wide >> 32) & low) ^ key ^ c1, wide & low
        key = (key + 0x9E3779B9) & low
    uniform = ((c0 ^ 0x1BD11BDA) >> 8).double() / 2**24
    return torch.where(uniform < torch.tensor(keep).float(), x / keep, 0.0)


@ct.kernel
def strided_kernel(x, y, out, A: Size, B: Size):
    i, j = ct.bid(0), ct.bid(1)
    a = ct.load(x, index=(i, j), shape=(A, B), padding_mode=ZERO)
    b = ct.load(y, index=(i, j), shape=(A, B), padding_mode=ZERO)
    ct.store(out, index=(i, j), tile=a - b)


def strided_difference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x.T - y[:, ::2], written into every other column of a wider tensor."""
    left, right = x.T, y[:, ::2]
    out = torch.empty(left.shape[0], 2 * left.shape[1], dtype=x.dtype, device=x.device)[:, ::2]
    grid = (ct.cdiv(left.shape[0], 8), ct.cdiv(left.shape[1], 16))
    ct.launch(torch.cuda.current_stream(), grid, strided_kernel, (left, right, out, 8, 16))
    return out


def _two(name_x: str, name_y: str, **more: Any) -> Any:
    def make(case: Case, generator: torch.Generator) -> dict[str, Any]:
        shape = (case["M"], case["N"]) if "M" in case else (case["N"],)
        return {name_x: normal(case, generator, *shape), name_y: normal(case, generator, *shape), **more}

    return make


def _one(**more: Any) -> Any:
    return lambda case, generator: {"x": normal(case, generator, case["N"]), **more}


EXAMPLES = (
    Example(
        "axpy",
        axpy,
        _two("x", "y", factor=2.5),
        lambda x, y, factor: x * factor + y,
        ({"N": 200}, {"N": 64, "dtype": "float16"}, {"N": 1, "dtype": "bfloat16"}, {"N": 130, "dtype": "float64"}),
        covers="T1, tails",
    ),
    Example(
        "rope_in_place",
        rope_in_place,
        rope_inputs,
        rope_reference,
        ({"H": 2, "S": 21, "D": 32}, {"H": 1, "S": 16, "D": 16, "dtype": "float16"}),
        covers="T2, rope",
    ),
    Example(
        "functions",
        functions,
        _two("x", "y"),
        functions_reference,
        ({"N": 190},),
        tolerance=(1e-4, 1e-4),
        covers="special functions",
    ),
    Example(
        "dropout",
        dropout,
        _one(seed=1234567, keep=0.7),
        dropout_reference,
        ({"N": 300},),
        covers="a counter-based generator in uint32 and uint64",
    ),
    Example(
        "strided_difference",
        strided_difference,
        lambda case, generator: {
            "x": normal(case, generator, case["N"], case["M"]),
            "y": normal(case, generator, case["M"], 2 * case["N"]),
        },
        lambda x, y: x.T - y[:, ::2],
        ({"M": 19, "N": 37}, {"M": 8, "N": 16, "dtype": "float16"}),
        covers="strided inputs and outputs",
    ),
)
