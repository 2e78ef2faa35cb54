"""Comparing a candidate's output with the float64 reference."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from tilewright.evaluation.results import Status
from tilewright.task import Tolerance


@dataclass(frozen=True)
class Allowance:
    """How far an output of a dtype may be off: per element relative to it and to the output's rms, and in norm."""

    rtol: float
    rms_tol: float
    rel_l2: float


# An honest kernel rounds its result once (half a unit in the last place: 2^-24, 2^-11, 2^-9, 2^-4 relative) and
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


@dataclass(frozen=True)
class Comparison:
    """One output against its reference: the status, the cause, and how large the errors are."""

    status: Status
    message: str = ""
    max_abs_error: float | None = None
    rel_l2_error: float | None = None
    wrong_fraction: float | None = None


def compare(name: str, actual: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> Comparison:
    """Compare `actual`, in its own dtype, with `expected` in float64 (or exactly, for integers and bools).

    NaN agrees only with NaN and an infinity only with itself. The message says where the output first differs.
    """
    if actual.numel() == 0:
        return Comparison(Status.PASSED, "", 0.0, 0.0, 0.0)
    if actual.is_complex():
        return compare(name, torch.view_as_real(actual), torch.view_as_real(expected), tolerance)
    if not actual.dtype.is_floating_point and not expected.dtype.is_floating_point and tolerance.atol is None:
        return _compare_exactly(name, actual, expected)
    allowed = _ALLOWED.get(actual.dtype, _EXACT)
    found = actual.to(torch.float64)
    wanted = expected.to(torch.float64)
    finite = torch.isfinite(wanted)
    bad = ~torch.isfinite(found) & finite
    if bool(bad.any()):
        count = int(bad.sum())
        kind = "NaN" if bool(torch.isnan(found[bad]).all()) else "not finite"
        where = _first(bad)
        return Comparison(
            Status.NON_FINITE,
            f"{name}: {count} of {bad.numel()} elements are {kind}, the first at {where}: they were never written, or "
            "the arithmetic overflowed",
            wrong_fraction=count / bad.numel(),
        )
    differs = torch.where(torch.isnan(wanted), ~torch.isnan(found), (found != wanted) & ~finite)
    error = torch.where(finite, (found - wanted).abs(), 0.0)
    norm = float(torch.linalg.vector_norm(torch.where(finite, wanted, 0.0)))
    rms = norm / math.sqrt(wanted.numel())
    rtol = tolerance.rtol if tolerance.rtol is not None else allowed.rtol
    atol = tolerance.atol if tolerance.atol is not None else allowed.rms_tol * rms
    limit_l2 = tolerance.rel_l2 if tolerance.rel_l2 is not None else allowed.rel_l2
    wrong = differs | (error > atol + rtol * torch.where(finite, wanted.abs(), 0.0))
    count = int(wrong.sum())
    l2 = float(torch.linalg.vector_norm(error))
    rel_l2 = l2 / norm if norm else (0.0 if l2 == 0 else math.inf)
    measured = (float(error.max()), min(rel_l2, 1e300), count / wrong.numel())
    if count:
        where = _first(wrong)
        return Comparison(
            Status.WRONG_VALUES,
            f"{name}: {count} of {wrong.numel()} elements are wrong ({count / wrong.numel():.2%}), the first at "
            f"{where}: {_value(found, where)} instead of {_value(wanted, where)}; {_extent(wrong)}",
            *measured,
        )
    if rel_l2 > limit_l2:
        return Comparison(
            Status.WRONG_VALUES,
            f"{name}: every element is near the reference, but ‖out − ref‖ / ‖ref‖ = {rel_l2:.1e} is over "
            f"{limit_l2:.1e}: computed in too low a precision, or by another formula",
            *measured,
        )
    return Comparison(Status.PASSED, "", *measured)


def _compare_exactly(name: str, actual: torch.Tensor, expected: torch.Tensor) -> Comparison:
    wrong = actual.to(torch.int64) != expected.to(torch.int64)
    count = int(wrong.sum())
    if not count:
        return Comparison(Status.PASSED, "", 0.0, 0.0, 0.0)
    where = _first(wrong)
    return Comparison(
        Status.WRONG_VALUES,
        f"{name}: {count} of {wrong.numel()} elements are wrong ({count / wrong.numel():.2%}), the first at {where}: "
        f"{int(actual[where])} instead of {int(expected[where])}; {_extent(wrong)}",
        wrong_fraction=count / wrong.numel(),
    )


def _first(mask: torch.Tensor) -> tuple[int, ...]:
    flat = int(mask.reshape(-1).to(torch.uint8).argmax())
    return tuple(int(index) for index in torch.unravel_index(torch.tensor(flat), mask.shape))


def _value(tensor: torch.Tensor, where: tuple[int, ...]) -> str:
    return f"{float(tensor[where]):.6g}"


def _extent(wrong: torch.Tensor) -> str:
    """Which index ranges hold the wrong elements, axis by axis."""
    parts = []
    for axis in range(wrong.ndim):
        others = [other for other in range(wrong.ndim) if other != axis]
        hit = wrong.any(dim=others) if others else wrong
        places = torch.nonzero(hit).reshape(-1)
        low, high = int(places[0]), int(places[-1])
        size = wrong.shape[axis]
        parts.append(f"all {size}" if high - low + 1 == size else f"{low}..{high} of {size}")
    return "wrong elements span " + " x ".join(parts)
