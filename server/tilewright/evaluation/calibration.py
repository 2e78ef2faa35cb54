"""What error an honest kernel makes on one run: float32 and input-dtype arithmetic set beside the float64 reference."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from tilewright.evaluation.taskcode import Inputs, TaskCode
from tilewright.evaluation.values import in_tfloat32, nudged, of_class, strengths, subnormals_flushed
from tilewright.task import Case, TaskError, Values

STEP = 2.0**-22
"""The relative nudge of the inputs that shows how an output follows them; small, so that it stays linear."""
NUDGES = 2
"""Draws of up and down for each input tensor; tensors are nudged one by one, lest the moves of two factors cancel."""
UNIT32 = 2.0**-24
UNIT_TF32 = 2.0**-11
SAMPLED = 64
"""Rows, and columns, of an output that stand for all where medians are taken."""
EXACT_LIMIT = 2.0**20
"""Up to here integer results count as exact in float32: partial sums have sixteen times the room."""


@dataclass(frozen=True)
class Honest:
    """Error scales of one floating-point output, of `dtype`; tensors are float64 and of the output's shape.

    Where the task's precision is tfloat32, that is the input dtype of float32 inputs here.

    `spread`: by how much the output changes when each input element moves by its own magnitude, up or down at random;
    in root mean square over draws, and in root sum of squares over the inputs. `plain`: the error of the reference in
    the input dtype, which rounds after every torch operation. `excess`: its rms over that of a single rounding, in
    units of `unit * spread`. `floor`: what subnormals in float32, or of a float16 intermediate, may lose. `exact`:
    float32 gives the float64 result. `length`: the longest input axis. `drawn`: the values are the task's own.
    """

    dtype: torch.dtype
    spread: torch.Tensor
    plain: torch.Tensor
    floor: torch.Tensor | float
    excess: float
    exact: bool
    unit: float
    length: int
    drawn: bool

    @property
    def terms(self) -> float:
        """Float32 roundings that add up in one element, as multiples of a unit: sums of `length` terms in any order
        and a few approximate functions."""
        return 16.0 + 4.0 * math.sqrt(self.length)


@dataclass(frozen=True)
class Trial:
    """A case's inputs with values of a class, the float64 reference on them, and an honest kernel's error scales.

    `expected` is NaN where values of a class give no finite number in range: a kernel may return anything there.
    `honest` holds None for an output that is not floating-point, or that cannot be calibrated."""

    inputs: Inputs
    values: Values
    expected: list[torch.Tensor]
    contract: list[torch.Tensor]
    honest: list[Honest | None]

    @property
    def informative(self) -> bool:
        """Whether any output tells right from wrong: elements that differ, or a single one that is not zero. Outputs
        without elements have nothing that could be wrong."""
        return not any(like.numel() for like in self.contract) or any(
            _informative(wanted, like) for wanted, like in zip(self.expected, self.contract, strict=True)
        )


def make_trial(
    code: TaskCode, case: Case, seed: int, values: Values = Values.DRAWN, drawn: Inputs | None = None
) -> Trial:
    """The trial of a case that a seed stands for. A strength of `values` suits the task if its reference is finite and
    in the output's range on as large a share of elements as on the task's own draw. If none suits, the strength with
    the largest share is taken; if that is under half as large, or the task is ill-conditioned, the task's own draw.
    `drawn`: that draw, if it was made before."""
    drawn = code.inputs(case, seed) if drawn is None else drawn
    contract = code.contract(case, drawn)
    if not code.takes_float64:
        return Trial(drawn, Values.DRAWN, code.expected(case, drawn), contract, [None] * len(contract))
    suited = [like.dtype.is_floating_point for like in contract]
    best: Trial | None = None
    most, usual = 0.0, None
    generator = torch.Generator(device=code.device).manual_seed(seed + 1)
    for rung, only in strengths(drawn, values, generator):
        generator = torch.Generator(device=code.device).manual_seed(seed + 1)
        inputs = of_class(drawn, values, rung, generator, only) | code.constants_of(drawn)
        trial = _trial(code, case, inputs, contract, values, generator)
        if trial is None:
            continue
        share = _share(trial.expected)
        if share < 1 and usual is None:
            usual = _share(_in_range(code, case, drawn, contract))
        whole = usual is None or share >= usual
        if share > most and (usual is None or share >= usual / 2):
            best, most = trial, share
        if whole and (
            values is not Values.INTEGERS or all(honest.exact for honest in trial.honest if honest is not None)
        ):
            return trial
        if not any(suited):
            break
    if best is not None:
        return best
    generator.manual_seed(seed + 1)
    expected = code.expected(case, drawn)
    honest = calibrate(code, case, drawn, expected, contract, Values.DRAWN, generator)
    return Trial(drawn, Values.DRAWN, expected, contract, honest)


def calibrate(
    code: TaskCode,
    case: Case,
    inputs: Inputs,
    expected: list[torch.Tensor],
    contract: list[torch.Tensor],
    values: Values,
    generator: torch.Generator,
) -> list[Honest | None]:
    """The error scales of each output on these inputs; None where there are none to be had. Elements at which
    `expected` is not finite have none, and tell nothing about the others."""
    if not any(like.dtype.is_floating_point for like in contract):
        return [None] * len(contract)
    try:
        single = code.expected(case, inputs, torch.float32)
        moved = [
            code.expected(case, nudged(inputs, STEP, 0.0, generator, only=name))
            for name, value in inputs.items()
            if isinstance(value, torch.Tensor) and value.dtype.is_floating_point
            for _ in range(NUDGES)
        ]
        flushed = subnormals_flushed(inputs) if values is Values.TINY else None
        still = code.expected(case, flushed) if flushed is not None else None
    except TaskError:  # a reference that only takes the dtypes of its own inputs
        return [None] * len(contract)
    floats = [value for value in inputs.values() if isinstance(value, torch.Tensor) and value.dtype.is_floating_point]
    length = max((size for value in floats for size in value.shape), default=1)
    unit = max((unit_of(value.dtype) for value in floats), default=0.0)
    largest = max(map(_largest, floats), default=0.0)
    plain = _plain(code, case, inputs) if unit > UNIT32 else single
    if code.task.file.precision == "tfloat32" and 0 < unit <= UNIT32:
        unit, plain = UNIT_TF32, code.expected(case, in_tfloat32(inputs))
    found: list[Honest | None] = []
    for index, (wanted, like) in enumerate(zip(expected, contract, strict=True)):
        if not like.dtype.is_floating_point or like.dtype is torch.float64:
            found.append(None)
            continue
        wanted = wanted.to(torch.float64)
        finite = wanted.abs() <= float(torch.finfo(like.dtype).max)
        wanted = torch.where(finite, wanted, torch.nan)
        squares = torch.zeros_like(wanted)
        for outputs in moved:
            change = outputs[index].to(torch.float64) - wanted
            squares.addcmul_(change, change, value=1 / STEP**2 / NUDGES)
        spread = _smoothed(squares).sqrt()
        error = torch.where(finite, (single[index].to(torch.float64) - wanted).abs(), 0.0)
        exact = values is Values.INTEGERS and bool((error == 0).all()) and _largest(wanted) < EXACT_LIMIT
        floor: torch.Tensor | float = _least(like.dtype)
        if still is not None:
            floor = floor + torch.where(finite, (still[index].to(torch.float64) - wanted).abs(), 0.0)
        if any(value.dtype is torch.float16 for value in floats):
            floor = floor + 2.0**-24 * largest
        if values is Values.LARGE:  # a result may be the small difference of what is as large as the inputs
            floor = floor + 4 * UNIT32 * largest
        excess, rough = 1.0, torch.zeros((), device=wanted.device)
        if plain is not None:
            excess = _excess(plain[index], wanted, unit * spread)
            rough = _smoothed((plain[index].to(torch.float64) - wanted).square()).sqrt()
        found.append(
            Honest(like.dtype, spread, rough, floor, excess, exact, max(unit, UNIT32), length, values is Values.DRAWN)
        )
    return found


def unit_of(dtype: torch.dtype) -> float:
    """The largest relative error of one rounding to `dtype`, half a unit in the last place."""
    return float(torch.finfo(dtype).eps) / 2


def _trial(
    code: TaskCode,
    case: Case,
    inputs: Inputs,
    contract: list[torch.Tensor],
    values: Values,
    generator: torch.Generator,
) -> Trial | None:
    """The trial on these inputs, or None where they do not suit the task."""
    try:
        expected = _in_range(code, case, inputs, contract)
    except TaskError:  # a reference may well refuse values that its task never draws
        return None
    if not _share(expected):
        return None
    for wanted, like in zip(expected, contract, strict=True):
        if wanted.shape != like.shape:
            return None
        if like.dtype.is_floating_point:
            if values is Values.TINY and _rms(wanted) < _telling(like.dtype):
                return None
        elif not _stable(code, case, inputs, expected, generator):
            return None
    honest = calibrate(code, case, inputs, expected, contract, values, generator)
    for wanted, scales, like in zip(expected, honest, contract, strict=True):
        if not like.dtype.is_floating_point:
            continue
        if scales is None:
            return None
        spread = scales.spread[torch.isfinite(wanted)]
        middle = float((scales.terms * UNIT32 * spread).median()) if spread.numel() else 0.0
        if middle > 0.1 * _rms(wanted) > 0:
            return None
    return Trial(inputs, values, expected, contract, honest)


def _in_range(code: TaskCode, case: Case, inputs: Inputs, contract: list[torch.Tensor]) -> list[torch.Tensor]:
    """The float64 reference, with NaN where it is not finite there or in float32, or far out of the output's range."""
    expected = code.expected(case, inputs)
    single = code.expected(case, inputs, torch.float32)
    for index, (wanted, once, like) in enumerate(zip(expected, single, contract, strict=True)):
        if like.dtype.is_floating_point and wanted.shape == once.shape:
            within = torch.isfinite(once) & (wanted.abs() <= float(torch.finfo(like.dtype).max) / 4)
            expected[index] = torch.where(within, wanted, torch.nan)
    return expected


def _share(expected: list[torch.Tensor]) -> float:
    """The share of elements that are finite, of all outputs together."""
    return sum(int(torch.isfinite(one).sum()) for one in expected) / max(sum(one.numel() for one in expected), 1)


def _stable(
    code: TaskCode, case: Case, inputs: Inputs, expected: list[torch.Tensor], generator: torch.Generator
) -> bool:
    """Whether outputs that must be exact stay what they are when ties among the inputs are broken at random."""
    moved = code.expected(case, nudged(inputs, STEP, 2.0**-40, generator))
    return all(
        one.dtype.is_floating_point or torch.equal(one, other) for one, other in zip(expected, moved, strict=True)
    )


def _plain(code: TaskCode, case: Case, inputs: Inputs) -> list[torch.Tensor] | None:
    """The reference in the inputs' own dtype, which rounds after every torch operation; None where it fails."""
    before = torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    try:
        return code.expected(case, inputs, None)
    except TaskError:  # 8-bit floats have next to no arithmetic
        return None
    finally:
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = before


def _excess(plain: torch.Tensor, wanted: torch.Tensor, scale: torch.Tensor) -> float:
    """The rms error of `plain` over that of one rounding, in units of `scale`; at most 4, and 4 where it overflows."""
    if not plain.numel() or not bool((scale > 0).any()):
        return 0.0
    finite = torch.isfinite(wanted)
    error = (plain.to(torch.float64) - wanted).square() - (_rounded(wanted, plain.dtype) - wanted).square()
    if not bool(torch.isfinite(error[finite]).all()):
        return 4.0
    ratio = torch.where(scale > 0, error / scale.square(), 0.0).clamp(-16.0, 16.0)
    return min(math.sqrt(max(float(ratio[finite].mean()), 0.0)), 4.0)


def _rounded(wanted: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return (wanted.to(torch.float32) if dtype.itemsize == 1 else wanted).to(dtype).to(torch.float64)


def _smoothed(squares: torch.Tensor) -> torch.Tensor:
    """Squares from few samples, none below what its row and its column suggest (medians, so that one large element
    speaks for itself alone). Squares that are not finite are left out, and 0 in the result."""
    squares = torch.where(torch.isfinite(squares), squares, torch.nan)
    if squares.numel() < 2:
        return squares.nan_to_num(0.0)
    flat = squares.reshape(-1, squares.shape[-1])
    rows, columns = flat.shape
    some_rows = flat[:: -(-rows // SAMPLED)]
    by_row = flat[:, :: -(-columns // SAMPLED)].nanmedian(dim=1, keepdim=True).values
    by_column = some_rows.nanmedian(dim=0, keepdim=True).values
    if rows < 8 and columns > 9:  # too few to take a median of: neighbours help out
        near = by_column.reshape(-1).unfold(0, 9, 1).nanmedian(dim=1).values
        near = torch.cat((near[:1].expand(4), near, near[-1:].expand(4)))
        by_column = torch.fmax(by_column, near)
    by_column = torch.fmax(by_column, by_column.nanmedian() / 4)  # rows may share their draws, and so an unlucky one
    if columns < 16:
        by_row = torch.fmax(by_row, by_row.nanmedian() / 4)
    overall = some_rows[:, :: -(-columns // SAMPLED)].nanmedian()
    if not float(overall) > 0:
        return squares.nan_to_num(0.0)
    known = torch.isfinite(flat)
    return torch.where(known, torch.fmax(flat, by_row * by_column / overall), 0.0).reshape(squares.shape)


def _informative(wanted: torch.Tensor, like: torch.Tensor) -> bool:
    if not wanted.numel():
        return False
    seen = _rounded(wanted, like.dtype) if like.dtype.is_floating_point else wanted.to(torch.float64)
    seen = torch.view_as_real(wanted) if wanted.is_complex() else seen
    seen = seen[~torch.isnan(seen)]
    return bool((seen != seen[0]).any()) if seen.numel() > 1 else bool((seen != 0).any())


def _largest(tensor: torch.Tensor) -> float:
    """The largest magnitude of the finite elements."""
    tensor = tensor.to(torch.float32) if tensor.element_size() == 1 else tensor
    return float(torch.where(torch.isfinite(tensor), tensor.abs(), 0.0).max()) if tensor.numel() else 0.0


def _rms(tensor: torch.Tensor) -> float:
    """The root mean square of the finite elements; 0 where there are none."""
    tensor = tensor[torch.isfinite(tensor)]
    return float(tensor.square().mean().sqrt()) if tensor.numel() else 0.0


def _telling(dtype: torch.dtype) -> float:
    """The rms from which on an output of tiny values tells right from wrong: above what a kernel may flush, or, where
    it may flush nothing, with digits enough among the subnormals."""
    info = torch.finfo(dtype)
    return min(16 * float(info.tiny), min(256.0, 1 / float(info.eps)) * _least(dtype))


def _least(dtype: torch.dtype) -> float:
    """What a kernel may flush to zero: subnormals, of dtypes whose exponent is float32's; else the least number."""
    info = torch.finfo(dtype)
    flushed = dtype in (torch.float32, torch.bfloat16)
    return float(info.tiny) if flushed else float(info.tiny) * float(info.eps)
