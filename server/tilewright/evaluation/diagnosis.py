"""Where an output is wrong, and what that usually means. Pure functions on CPU or device tensors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch

NEAR = 2.0**-6
"""Values this close, relative to the output's size, count as the same when explanations are tried."""
SHOWN = 420
_SAMPLE = 2**22
"""Above so many elements no other layout of the output is tried: explanations are to cost less than the check."""


def explain(found: torch.Tensor, wanted: torch.Tensor, wrong: torch.Tensor, tiles: bool = True) -> str:
    """The extent of the wrong elements (`wrong`: a mask that holds at least one) and the likely cause, in words.

    `found` and `wanted` are of one shape, of any dtype. At most `SHOWN` characters. `tiles`: whether they may come from
    a kernel with blocks, and not from operations on whole tensors.
    """
    places = [_places(wrong, axis) for axis in range(wrong.ndim)]
    parts = [_extent(places, wrong.shape)] if wrong.ndim else []
    causes = [*_by_values(found.to(torch.float64), wanted.to(torch.float64), wrong), *_by_place(places, wrong, tiles)]
    return "; ".join([*parts, *causes[:2]])[:SHOWN]


def _places(wrong: torch.Tensor, axis: int) -> list[int]:
    """The indices of an axis under which anything is wrong."""
    others = [other for other in range(wrong.ndim) if other != axis]
    hit = wrong.any(dim=others) if others else wrong
    found: list[int] = torch.nonzero(hit).reshape(-1).tolist()
    return found


def _extent(places: list[list[int]], shape: torch.Size) -> str:
    """Which index ranges hold the wrong elements, axis by axis."""
    parts = []
    for indices, size in zip(places, shape, strict=True):
        low, high = indices[0], indices[-1]
        parts.append(f"all {size}" if high - low + 1 == size else f"{low}..{high} of {size}")
    return "wrong elements span " + " x ".join(parts)


def _by_place(places: list[list[int]], wrong: torch.Tensor, tiles: bool) -> Iterator[str]:
    """What the place of the wrong elements suggests."""
    whole = [len(indices) == size for indices, size in zip(places, wrong.shape, strict=True)]
    count = int(wrong.sum())
    box = math.prod(len(indices) for indices in places)
    for axis, indices in enumerate(places):
        if whole[axis] or len(indices) < 2:
            continue
        step = indices[1] - indices[0]
        if step > 1 and len(indices) > 2 and all(b - a == step for a, b in itertools.pairwise(indices)):
            yield f"only every {_ordinal(step)} index of axis {axis}: a stride, or lanes swapped or not written"
            return
    tails = [
        axis
        for axis, (indices, size) in enumerate(zip(places, wrong.shape, strict=True))
        if indices[0] > 0 and indices[-1] == size - 1 and len(indices) == size - indices[0]
    ]
    rest = all(whole[axis] or axis in tails for axis in range(wrong.ndim))
    if tails and rest and count > box // 2:
        named = " and ".join(f"axis {axis} from {places[axis][0]} on" for axis in tails)
        cause = "the last block, its mask or padding, or a grid or loop that ends too early"
        yield f"only the tail of {named}: {cause if tiles else 'a slice or a length that ends too early'}"
        return
    if tiles and count * 100 < wrong.numel() and count < box // 2:
        yield "scattered and few: a race, memory that was never written, or a precision too low where terms cancel"


def _by_values(found: torch.Tensor, wanted: torch.Tensor, wrong: torch.Tensor) -> Iterator[str]:
    """What the wrong values themselves suggest; nothing where they are not finite."""
    bad, good = found[wrong], wanted[wrong]
    if not bool(torch.isfinite(bad).all() and torch.isfinite(good).all()):
        return
    size = float(wanted[torch.isfinite(wanted)].square().mean().sqrt())
    if not size > 0:
        return
    if bool((bad == 0).all()) and bool((good != 0).any()):
        yield "the wrong elements are all 0: masked away, or zeroed and never added to"
        return
    yield from _by_layout(found, wanted, size)
    usable = good.abs() > 0.1 * size
    if int(usable.sum()) >= 4:
        ratios = bad[usable] / good[usable]
        ratio = float(ratios.median())
        if abs(ratio - 1) > 1e-3 and float((ratios - ratio).abs().max()) < NEAR * abs(ratio) * 0.5 and ratio:
            yield f"the wrong elements are {ratio:.4g} times the reference: a scale, a constant, or terms counted twice"
            return
    offsets = bad - good
    offset = float(offsets.median())
    if len(offsets) >= 4 and abs(offset) > 4e-3 * size and float((offsets - offset).abs().max()) < 0.05 * abs(offset):
        yield f"the wrong elements are off by {offset:.4g} each: a constant term, or one term left out or added twice"
        return
    relative = float(offsets.abs().max()) / size
    if relative < 0.05:
        yield (
            "the errors are small: a precision too low in an accumulator or an intermediate, another formula, or a "
            "constant that is slightly off"
        )
    elif len(offsets) > wanted.numel() // 2 and relative < 1.0:
        yield "most elements are near, but not right: a term dropped or added, or a loop one step short or long"


def _by_layout(found: torch.Tensor, wanted: torch.Tensor, size: float) -> Iterator[str]:
    """Whether the output is the reference with other indices."""
    if found.numel() > _SAMPLE or found.numel() < 4 or not bool((wanted != wanted.reshape(-1)[0]).any()):
        return

    def same(one: torch.Tensor, other: torch.Tensor) -> bool:
        if not one.numel() or float((other - other.mean()).abs().max()) < 2 * NEAR * size:
            return False
        return float((one - other).abs().mean()) < NEAR * size * 0.5

    if found.ndim > 1 and found.shape[-1] == found.shape[-2] and same(found, wanted.transpose(-1, -2)):
        yield "the output is the reference with its last two axes swapped"
    elif found.ndim > 1 and min(found.shape[-2:]) > 1 and same(found.reshape(-1), wanted.transpose(-1, -2).reshape(-1)):
        yield "the output holds the reference in the order of swapped axes: indices or strides are exchanged"


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
