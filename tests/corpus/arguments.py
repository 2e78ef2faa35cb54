"""Kernels with arguments or values that are neither tensors nor numbers: tuples, lists, dataclasses."""

from __future__ import annotations

import cuda.tile as ct
import torch

from tests.corpus.example import Example, normal

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


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


EXAMPLES = (
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
)
