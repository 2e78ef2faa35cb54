"""Where the inputs do not determine a reference's result: any of several equal elements may come first, a ratio halfway
between two integers may be rounded to either, and float32 arithmetic may end on either side of a step."""

from __future__ import annotations

import math

import torch

from tilewright.evaluation.taskcode import Inputs, TaskCode
from tilewright.task import Case, TaskError

TRIES, FEW = 48, 3
"""Draws of small moves. Of `FEW` equal elements, each comes first in one of them at least, but once in 200 million."""
FIRST = 6
"""Draws after which a result that never changed counts as determined."""
STEP, APART = 2.0**-22, 2.0**-40
"""How far a floating-point element moves: relative to itself, and relative to its tensor's size."""
ASIDE = 2.0**-8
"""How far an integer moves, if the reference takes it as a float: the order of different integers stays."""
FACTORS = (1.0, 2.0, 3.0, 4.0)
"""Steps up, and down. Where a ratio is halfway between two integers, float64 rounds to the one or the other."""
HAIR, HAIRS = 2.0**-20, 4
"""How far elements move that were on a step exactly, where float32 arithmetic knows the side: as a share of what they
move else; and draws of such moves."""
NEAR = 2.0**-7
"""Floating-point results that are nearer than this, relative to them and to the output's size, are alike."""
MOST = 2**20
"""Elements that are looked at. If more are wrong, it is not for ties."""


def without_ties(
    code: TaskCode, case: Case, inputs: Inputs, outputs: list[torch.Tensor], expected: list[torch.Tensor]
) -> tuple[list[torch.Tensor], int]:
    """The outputs with the reference's value at each element that is not determined, and how many those are.

    An element is not determined if the reference changes there when each input element moves a little by itself, and
    takes the same value whether all elements of a tensor grow or shrink by a factor, as equals and ratios do, and as
    thresholds do not; or, of results that are no floats, stays when the elements move by much less, which they do
    not survive on a threshold. The output has to have a value there that the reference takes; unless that is an
    integer, and the reference takes more than a few.
    """
    wrong = [~_alike(one, wanted) for one, wanted in zip(outputs, expected, strict=True)]
    count = sum(int(one.sum()) for one in wrong)
    if not 0 < count <= MOST:
        return outputs, 0

    def at_wrong(results: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat([one[where].to(torch.float64) for one, where in zip(results, wrong, strict=True)])

    def at_scaled(name: str, by: float) -> torch.Tensor:
        return at_wrong(code.expected(case, inputs | {name: _scaled(inputs[name], by)}))

    def of_each(values: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat([one.expand(int(where.sum())) for one, where in zip(values, wrong, strict=True)])

    sizes = of_each([_size(one) for one in expected])
    bools = of_each([torch.tensor(one.dtype is torch.bool, device=code.device) for one in expected])
    wanted, made = at_wrong(expected), at_wrong(outputs)
    generator = torch.Generator(device=code.device).manual_seed(0)
    try:
        names = [name for name, value in inputs.items() if _moves(code, case, inputs, name, value, expected)]
        tries: list[torch.Tensor] = []
        for number in range(TRIES):
            moved = {name: _moved(inputs[name], _signs(inputs[name], generator)) for name in names}
            tries.append(at_wrong(code.expected(case, inputs | moved)))
            if number == FIRST and all(bool(_near(one, wanted, sizes).all()) for one in tries):
                return outputs, 0
        seen = torch.stack(tries).sort(dim=0).values
        open_, usual = ~bools, _near(seen, wanted, sizes).any(dim=0)  # a mask of all equals is determined
        for name in names:
            up = torch.stack([at_scaled(name, by) for by in FACTORS])
            down = torch.stack([at_scaled(name, -by) for by in FACTORS])
            open_ &= torch.stack([_near(one, down, sizes).any(dim=0) for one in up]).any(dim=0)
            open_ &= usual | _near(torch.cat([up, down]), wanted, sizes).any(dim=0)
        beside = sizes < 0
        for _ in range(HAIRS):
            moved = {name: _moved(inputs[name], HAIR * _signs(inputs[name], generator)) for name in names}
            beside &= at_wrong(code.expected(case, inputs | moved)) == wanted
    except (TaskError, IndexError):  # a reference that takes only some values, or whose shapes follow from them
        return outputs, 0
    steps = (~_near(seen[1:], seen[:-1], sizes)).sum(dim=0)  # between different values
    taken = _near(seen, made, sizes).any(dim=0)
    open_ = (open_ & (taken | ((steps >= FEW) & (sizes < 0)))) | (beside & taken)
    settled, start = [], 0
    for output, reference, where in zip(outputs, expected, wrong, strict=True):
        end = start + int(where.sum())
        chosen = torch.zeros_like(where).masked_scatter(where, open_[start:end])
        settled.append(torch.where(chosen, reference.to(output.dtype), output) if bool(chosen.any()) else output)
        start = end
    return settled, int(open_.sum())


def _alike(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Of each element, whether two results are alike; complex numbers count so: no ties are looked for."""
    if found.shape != wanted.shape or found.is_complex():
        return torch.ones_like(wanted, dtype=torch.bool)
    return _near(found.to(torch.float64), wanted.to(torch.float64), _size(wanted)) | torch.isnan(wanted)


def _near(one: torch.Tensor, other: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
    return (one == other) | ((one - other).abs() <= NEAR * (other.abs() + size))


def _size(wanted: torch.Tensor) -> torch.Tensor:
    """What nearness is relative to, beside an element: a float output's root mean square; of integers, nothing is."""
    if not wanted.dtype.is_floating_point:
        return torch.full((), -torch.inf, dtype=torch.float64, device=wanted.device)
    return wanted.to(torch.float64).nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt()


def _signs(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    drawn = torch.rand(value.shape, generator=generator, device=value.device, dtype=torch.float64)
    return 2 * drawn - 1


def _moved(value: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    """The tensor in float64, moved by a little times `signs`."""
    wide = value.to(torch.float64)
    if not value.dtype.is_floating_point:
        return wide + ASIDE * signs
    size = wide.square().mean().sqrt()
    return wide + (STEP * wide.abs() + APART * torch.where(size > 0, size, 1.0)) * signs


def _moves(code: TaskCode, case: Case, inputs: Inputs, name: str, value: object, expected: list[torch.Tensor]) -> bool:
    """Whether elements of an input are numbers that may move: floats, and integers that the reference takes as such."""
    if not isinstance(value, torch.Tensor) or value.is_complex() or value.dtype is torch.bool or not value.numel():
        return False
    if value.dtype.is_floating_point:
        return True
    try:
        raised = code.expected(case, inputs | {name: value.to(torch.float64)})
    except TaskError:
        return False
    return all(one.dtype == wanted.dtype for one, wanted in zip(raised, expected, strict=True))


def _scaled(value: torch.Tensor, times: float) -> torch.Tensor:
    """The tensor in float64, all of it larger or smaller by the same small factor; what is 0 moves up or down."""
    if not value.dtype.is_floating_point:
        return value.to(torch.float64) + ASIDE * math.copysign(1.0, times)
    wide = value.to(torch.float64)
    return torch.where(wide == 0, APART * times, wide * (1 + STEP * times))
