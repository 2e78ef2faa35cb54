"""Kernels whose outputs each depend on few inputs, in place and with strides."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Case, Example, normal

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


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


EXAMPLES = (
    Example(
        "rope_in_place",
        rope_in_place,
        rope_inputs,
        rope_reference,
        ({"H": 2, "S": 21, "D": 32}, {"H": 1, "S": 16, "D": 16, "dtype": "float16"}),
        covers="T2, rope",
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
