"""Kernels with arguments or values that are neither tensors nor numbers: tuples, lists, dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Example, normal

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@dataclass(frozen=True)
class Line:
    """A straight line; kernels hold it as a value."""

    slope: Any
    offset: Any

    def at(self, place):  # type: ignore[no-untyped-def]
        return self.slope * place + self.offset


@ct.kernel
def lines_kernel(x, out, T: Size):
    i = ct.bid(0)
    a = ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO)
    lines = ()
    for number in ct.static_iter(range(3)):
        lines += (Line(number + 1.0, a * number),)
    total = ct.zeros((T,), ct.float32)
    for line in ct.static_iter(lines):
        total += line.at(a)
    ct.store(out, index=(i,), tile=total)


def lines(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], 16),), lines_kernel, (x, out, 16))
    return out


@ct.kernel
def tuple_kernel(inputs: tuple, weights: tuple, out, T: Size):
    """Any number of tensors, passed as one tuple, and as many weights."""
    i = ct.bid(0)
    total = ct.zeros((T,), ct.float32)
    for number in ct.static_iter(range(len(inputs))):
        total += weights[number] * ct.load(inputs[number], index=(i,), shape=(T,), padding_mode=ZERO)
    ct.store(out, index=(i,), tile=total)


def weighted_sum(inputs: tuple[torch.Tensor, ...], weights: tuple[float, ...]) -> torch.Tensor:
    out = torch.empty_like(inputs[0])
    arguments = (inputs, weights, out, 16)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(out.shape[0], 16),), tuple_kernel, arguments)
    return out


@ct.kernel
def list_kernel(inputs, out, T: Size):
    """Any number of tensors of one shape, passed as a list that is indexed as it runs."""
    i = ct.bid(0)
    total = ct.zeros((T,), ct.float32)
    for number in range(len(inputs)):
        total += ct.load(inputs[number], index=(i,), shape=(T,), padding_mode=ZERO)
    ct.store(out, index=(i,), tile=total)


def list_sum(inputs: list[torch.Tensor]) -> torch.Tensor:
    out = torch.empty_like(inputs[0])
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(out.shape[0], 16),), list_kernel, (inputs, out, 16))
    return out


@ct.kernel
def polynomial_kernel(x, out, COEFFICIENTS: ct.Constant, T: Size):
    """Horner's rule over coefficients that the compiler knows."""
    i = ct.bid(0)
    a = ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO)
    total = ct.zeros((T,), ct.float32)
    for coefficient in ct.static_iter(COEFFICIENTS):
        total = total * a + coefficient
    ct.store(out, index=(i,), tile=total)


def polynomial(x: torch.Tensor, coefficients: tuple[float, ...]) -> torch.Tensor:
    out = torch.empty_like(x)
    arguments = (x, out, coefficients, 16)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], 16),), polynomial_kernel, arguments)
    return out


def polynomial_reference(x: torch.Tensor, coefficients: tuple[float, ...]) -> torch.Tensor:
    total = torch.zeros_like(x)
    for coefficient in coefficients:
        total = total * x + coefficient
    return total


def _vector(size: int) -> Any:
    return lambda case, generator: {"x": normal(case, generator, size)}


EXAMPLES = (
    Example(
        "lines",
        lines,
        _vector(30),
        lambda x: (1 + 2 + 3) * x + (0 + 1 + 2) * x,
        ({},),
        covers="dataclasses and tuples as values",
    ),
    Example(
        "weighted_sum",
        weighted_sum,
        lambda case, generator: {
            "inputs": tuple(normal(case, generator, 40) for _ in range(3)),
            "weights": (0.5, -2.0, 3.0),
        },
        lambda inputs, weights: sum(w * x for w, x in zip(weights, inputs, strict=True)),
        ({},),
        covers="tuples as arguments",
    ),
    Example(
        "list_sum",
        list_sum,
        lambda case, generator: {"inputs": [normal(case, generator, 40) for _ in range(5)]},
        lambda inputs: sum(inputs[1:], inputs[0]),
        ({},),
        covers="lists as arguments",
    ),
    Example(
        "polynomial",
        polynomial,
        lambda case, generator: {**_vector(40)(case, generator), "coefficients": (0.5, -1.0, 0.25, 2.0)},
        polynomial_reference,
        ({},),
        covers="a tuple of constants",
    ),
)
