"""Comparing a candidate's output with the float64 reference."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from tilewright.evaluation.calibration import UNIT32, Honest, unit_of
from tilewright.evaluation.diagnosis import explain
from tilewright.evaluation.results import Status
from tilewright.task import Tolerance


@dataclass(frozen=True)
class Allowance:
    """How far an output of a dtype may be off: per element relative to it and to the output's rms, and in norm."""

    rtol: float
    rms_tol: float
    rel_l2: float


# An honest kernel rounds its result once (half a unit in the last place: 2^-24, 2^-11, 2^-8, 2^-4 relative) and
# accumulates in float32 or better. Norm limits are about four times the error of that, and below what the next lower
# precision gives: bfloat16 arithmetic for a float16 output, or tfloat32 for a float32 one (3e-4), does not pass.
_ALLOWED = {
    torch.float64: Allowance(1e-10, 1e-10, 1e-11),
    torch.float32: Allowance(1e-4, 5e-5, 2e-5),
    torch.float16: Allowance(4e-3, 4e-3, 1.2e-3),
    torch.bfloat16: Allowance(1.6e-2, 1.6e-2, 8e-3),
    torch.float8_e4m3fn: Allowance(0.13, 0.13, 0.06),
    torch.float8_e5m2: Allowance(0.26, 0.26, 0.12),
}
_EXACT = Allowance(0.0, 0.0, 0.0)
TFLOAT32 = _ALLOWED[torch.float16]
"""For a float32 output whose products may be in tfloat32, which has float16's mantissa."""
ROUNDINGS = 3.0
"""Roundings to the output's or the inputs' dtype that an honest kernel may make on the way, the last one among them."""
EXACT_ROOM = 4.0
"""Times what the reference itself errs where its own dtype rounds a product that float32 would keep, up to a rounding;
large, since few draws tell the spread, and the largest of millions of roundings is far from a usual one."""
FEW = 64
"""Elements up to which the norm, and each element, has room for twice what the reference errs in its own dtype: of so
few, errors do not average out, and all may lie where the output is small."""


@dataclass(frozen=True)
class Comparison:
    """One output against its reference: the status, the cause, and how large the errors are. `open`: how many elements
    were not compared, since the inputs do not determine them. `used`: the share of the error allowed, where it
    passed."""

    status: Status
    message: str = ""
    max_abs_error: float | None = None
    rel_l2_error: float | None = None
    wrong_fraction: float | None = None
    open: int = 0
    used: float = 0.0


def compare(
    name: str,
    actual: torch.Tensor,
    expected: torch.Tensor,
    tolerance: Tolerance,
    honest: Honest | None = None,
    table: Allowance | None = None,
    tiles: bool = True,
) -> Comparison:
    """Compare `actual`, in its own dtype, with `expected` in float64 (or exactly, for integers and bools).

    What it may be off by follows from an honest kernel's error scales where `honest` has them, within the bounds of its
    dtype (or of `table`); what `tolerance` says goes first. NaN agrees only with NaN and an infinity only with itself;
    on other values than the task's own draw, where a reference is not finite, anything agrees, and on all values, where
    it is out of the dtype's range, what has its sign and is as large, or is not finite.
    The message says where the output first differs, and what that usually means, of a kernel's `tiles` too.
    """
    if actual.numel() == 0:
        return Comparison(Status.PASSED, "", 0.0, 0.0, 0.0)
    if actual.is_complex():
        return compare(
            name, torch.view_as_real(actual), torch.view_as_real(expected), tolerance, table=table, tiles=tiles
        )
    if not actual.dtype.is_floating_point and not expected.dtype.is_floating_point and tolerance.atol is None:
        return _compare_exactly(name, actual, expected, tiles)
    found = actual.to(torch.float64)
    wanted = expected.to(torch.float64)
    most = float(torch.finfo(actual.dtype).max) if actual.dtype.is_floating_point else math.inf
    finite = torch.isfinite(wanted) & (wanted.abs() <= most)
    bad = ~torch.isfinite(found) & finite
    if bool(bad.any()):
        count = int(bad.sum())
        kind = "NaN" if bool(torch.isnan(found[bad]).all()) else "not finite"
        return Comparison(
            Status.NON_FINITE,
            f"{name}: {count} of {bad.numel()} elements are {kind}, the first at {_first(bad)}: they were never "
            f"written, or the arithmetic overflowed; {explain(found, wanted, bad, tiles)}",
            wrong_fraction=count / bad.numel(),
        )
    differs = torch.where(torch.isnan(wanted), ~torch.isnan(found), (found != wanted) & ~finite)
    if honest is not None and not honest.drawn:
        differs = torch.zeros_like(differs)
    elif not bool(finite.all()):  # what is beyond the dtype's range may saturate; 8-bit floats have an infinity or none
        beyond = ~finite & (torch.isfinite(wanted) | (torch.isinf(wanted) & (actual.element_size() == 1)))
        differs &= ~(beyond & (~torch.isfinite(found) | (found * wanted.sign() >= most / 4)))
    error = torch.where(finite, (found - wanted).abs(), 0.0)
    wanted = torch.where(finite, wanted, torch.nan)
    norm = float(torch.linalg.vector_norm(wanted.nan_to_num(0.0)))
    error = torch.where(error > _unseen(actual.dtype, norm / math.sqrt(max(int(finite.sum()), 1))), error, 0.0)
    element, most_norm = _limits(wanted, actual.dtype, tolerance, honest, table)
    wrong = differs | (error > element)
    count = int(wrong.sum())
    l2 = float(torch.linalg.vector_norm(error))
    rel_l2 = l2 / norm if norm else (0.0 if l2 == 0 else math.inf)
    measured = (float(error.max()), min(rel_l2, 1e300), count / wrong.numel())
    if count:
        return _wrong(name, actual, expected, wrong, measured, tiles)
    if l2 > most_norm:
        return Comparison(
            Status.WRONG_VALUES,
            f"{name}: every element is near the reference, but ‖out − ref‖ / ‖ref‖ = {rel_l2:.1e} is over "
            f"{most_norm / norm if norm else 0.0:.1e}: computed in too low a precision, or by another formula",
            *measured,
        )
    used = float(torch.where(error > 0, error / element, 0.0).max())
    return Comparison(Status.PASSED, "", *measured, used=max(used, l2 / most_norm if l2 else 0.0))


def _unseen(dtype: torch.dtype, rms: float) -> float:
    """Up to where an error is none, beside values of this root mean square: what the dtype rounds away at 0, and a
    rounding's rounding, 4e-15 of the values in float32 and what is shorter. Float32 arithmetic on such values goes in
    steps 2^24 times as large; what a mask lets through, or a term that is missing, is larger too."""
    if not dtype.is_floating_point or not math.isfinite(rms):
        return 0.0
    info = torch.finfo(dtype)
    return min(unit_of(dtype), UNIT32) ** 2 * rms + float(info.tiny) * float(info.eps) / 2


def _limits(
    wanted: torch.Tensor,
    dtype: torch.dtype,
    tolerance: Tolerance,
    honest: Honest | None,
    table: Allowance | None = None,
) -> tuple[torch.Tensor, float]:
    """What one output may be off by in each element, and in the 2-norm over all.

    `wanted` is the reference in float64, NaN where nothing is compared. A dtype's table bounds what honest scales would
    allow; they let it grow only where elements are small results of large terms. On other values than the task's own
    draw, a tolerance of the task is taken relative to the terms too; an `rtol` without a `rel_l2`, the norm has room
    for.
    """
    table = table or _ALLOWED.get(dtype, _EXACT)
    size = wanted.abs().nan_to_num(0.0)
    count = max(int(torch.isfinite(wanted).sum()), 1)
    norm = float(torch.linalg.vector_norm(size))
    rms = norm / math.sqrt(count)
    given = tolerance.rtol is not None or tolerance.atol is not None
    rtol = tolerance.rtol if tolerance.rtol is not None else table.rtol
    atol = tolerance.atol if tolerance.atol is not None else table.rms_tol * rms
    rel_l2 = tolerance.rel_l2 if tolerance.rel_l2 is not None else table.rel_l2
    relative = (tolerance.rtol or 0.0) if tolerance.rel_l2 is None else 0.0
    if honest is None or dtype not in _ALLOWED or (given and honest.drawn):
        element = atol + rtol * size
        room = _room(element, relative * norm)
        return element, max(rel_l2 * norm, room)
    spread = honest.spread
    single = honest.terms * UNIT32 * spread + honest.floor  # float32 arithmetic in any order
    once = unit_of(dtype) * size
    outer = atol + rtol * (size + spread) + honest.floor
    if given:
        allowed = outer
    elif honest.exact:
        rounded: torch.Tensor | float = 0.0
        if honest.excess > 0.05:  # the reference itself is not exact in its own dtype
            excess = max(min(EXACT_ROOM * honest.excess, 1.0), 2 * honest.excess)
            rounded = ROUNDINGS * excess * honest.unit * spread + 2 * honest.plain
        allowed = _ulp(size, dtype) + rounded + single
    else:
        rounded = ROUNDINGS * (once + max(honest.excess, 1.0) * honest.unit * spread)
        calibrated = rounded + 2 * honest.plain + single + honest.terms * UNIT32 * size
        allowed = torch.maximum(torch.minimum(calibrated, outer), once + single / 4)
        if count <= FEW:
            allowed = torch.maximum(allowed, 2 * honest.plain)
    base = float(torch.linalg.vector_norm(torch.maximum(size, spread / 4)))
    least = float(torch.linalg.vector_norm(once + single / 4))
    room = _room(allowed, relative * base)
    if count <= FEW and not given:
        room = max(room, 2 * float(torch.linalg.vector_norm(honest.plain)))
    limit = max(rel_l2 * base, least, room) + float(torch.linalg.vector_norm(honest.floor + torch.zeros_like(size)))
    return allowed, limit


def _room(element: torch.Tensor, most: float) -> float:
    """The norm of normal errors the largest of which are as `element` allows, at most `most`: of n, the largest is
    about sqrt(2 ln n) deviations."""
    if not most:
        return 0.0
    return min(float(torch.linalg.vector_norm(element)) / math.sqrt(max(2 * math.log(element.numel()), 1.0)), most)


def _ulp(size: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance between neighbours of `dtype` at each magnitude; 0 at 0."""
    _, exponent = torch.frexp(size)
    return torch.where(size > 0, torch.exp2(exponent - 1.0) * float(torch.finfo(dtype).eps), 0.0)


def _wrong(
    name: str,
    actual: torch.Tensor,
    expected: torch.Tensor,
    wrong: torch.Tensor,
    measured: tuple[float | None, float | None, float],
    tiles: bool,
) -> Comparison:
    where = _first(wrong)
    found, wanted = _value(actual, where), _value(expected, where)
    if found == wanted:
        found, wanted = f"{float(actual[where]):.9g}", f"{float(expected[where]):.9g}"
    text = (
        f"{name}: {int(wrong.sum())} of {wrong.numel()} elements are wrong ({measured[2]:.2%}), the first at {where}: "
        f"{found} instead of {wanted}; {explain(actual, expected, wrong, tiles)}"
    )
    return Comparison(Status.WRONG_VALUES, text, *measured)


def _compare_exactly(name: str, actual: torch.Tensor, expected: torch.Tensor, tiles: bool) -> Comparison:
    wrong = actual.to(torch.int64) != expected.to(torch.int64)
    count = int(wrong.sum())
    if not count:
        return Comparison(Status.PASSED, "", 0.0, 0.0, 0.0)
    return _wrong(name, actual, expected, wrong, (None, None, count / wrong.numel()), tiles)


def _first(mask: torch.Tensor) -> tuple[int, ...]:
    flat = int(mask.reshape(-1).to(torch.uint8).argmax())
    return tuple(int(index) for index in torch.unravel_index(torch.tensor(flat), mask.shape))


def _value(tensor: torch.Tensor, where: tuple[int, ...]) -> str:
    value = tensor[where]
    return f"{float(value):.6g}" if tensor.dtype.is_floating_point else str(int(value))
