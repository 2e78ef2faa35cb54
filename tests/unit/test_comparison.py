"""What counts as the right answer, and what a wrong one is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tilewright.evaluation.calibration import Honest, _least, make_trial
from tilewright.evaluation.comparison import compare
from tilewright.evaluation.results import Status
from tilewright.evaluation.taskcode import TaskCode
from tilewright.task import Backend, Case, Tolerance, Values, load_task

DEFAULT = Tolerance()
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def reference(seed: int = 0) -> torch.Tensor:
    return torch.randn(64, 48, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [*FLOATS, torch.float8_e4m3fn, torch.float8_e5m2])
def test_an_output_rounded_once_passes(dtype: torch.dtype) -> None:
    expected = reference()
    found = compare(
        "out", expected.to(torch.float32).to(dtype) if dtype.itemsize == 1 else expected.to(dtype), expected, DEFAULT
    )
    assert found.status is Status.PASSED, found.message


@pytest.mark.parametrize(("dtype", "lower"), [(torch.float32, 10), (torch.float32, 7), (torch.float16, 7)])
def test_a_lower_precision_in_disguise_fails(dtype: torch.dtype, lower: int) -> None:
    """Mantissas of `lower` bits: tfloat32 (10) and bfloat16 (7)."""
    expected = reference()
    exponent = torch.floor(torch.log2(expected.abs()))
    unit = torch.exp2(exponent - lower)
    found = compare("out", (torch.round(expected / unit) * unit).to(dtype), expected, DEFAULT)
    assert found.status is Status.WRONG_VALUES


def test_bfloat16_accumulation_in_a_bfloat16_output_fails() -> None:
    terms = torch.randn(64, 512, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).abs()
    total = torch.zeros(64, dtype=torch.bfloat16)
    for column in range(512):
        total = total + terms[:, column].to(torch.bfloat16)
    assert compare("out", total, terms.sum(1), DEFAULT).status is Status.WRONG_VALUES


def test_one_wrong_element_is_found_and_placed() -> None:
    expected = reference()
    actual = expected.to(torch.float32)
    actual[17, 5] += 0.01
    found = compare("out", actual, expected, DEFAULT)
    assert found.status is Status.WRONG_VALUES
    assert "1 of 3072 elements are wrong" in found.message
    assert "the first at (17, 5)" in found.message
    assert "17..17 of 64 x 5..5 of 48" in found.message


def test_what_passes_says_how_much_of_the_error_allowed_it_uses() -> None:
    expected = torch.ones(64, 48, dtype=torch.float64)
    allowed = Tolerance(atol=0.0, rtol=1e-2, rel_l2=1.0)
    actual = expected.clone()
    assert compare("out", actual, expected, allowed).used == 0.0
    actual[3, 4] += 4e-3
    assert compare("out", actual, expected, allowed).used == pytest.approx(0.4)
    norm = allowed.model_copy(update={"rel_l2": 1e-4})  # the norm of the error is 4e-3 of sqrt(3072)
    assert compare("out", actual, expected, norm).used == pytest.approx(40 / 3072**0.5)


def test_nan_and_infinity_agree_only_with_themselves() -> None:
    expected = reference()
    expected[0, 0], expected[0, 1] = float("nan"), float("inf")
    right = expected.to(torch.float32)
    assert compare("out", right, expected, DEFAULT).status is Status.PASSED
    for place, value in (((0, 0), 0.0), ((0, 1), float("-inf")), ((0, 1), 3.4e38)):
        wrong = right.clone()
        wrong[place] = value
        assert compare("out", wrong, expected, DEFAULT).status is Status.WRONG_VALUES
    wrong = right.clone()
    wrong[5, 5] = float("nan")
    found = compare("out", wrong, expected, DEFAULT)
    assert found.status is Status.NON_FINITE
    assert "1 of 3072 elements are NaN, the first at (5, 5)" in found.message


def honest(dtype: torch.dtype, exact: bool, drawn: bool) -> Honest:
    """Of an output whose elements do not depend on the inputs: nothing but its own resolution allows an error."""
    zeros = torch.zeros(64, 48, dtype=torch.float64)
    return Honest(dtype, zeros, zeros, _least(dtype), 0.0, exact, 2.0**-24, 48, drawn)


LIMITS = [
    (DEFAULT, None),
    (Tolerance(rtol=1e-3, atol=0.0), None),
    (Tolerance(rtol=1e-3, atol=0.0), "drawn"),
    (Tolerance(rtol=1e-3, atol=0.0), "other"),
    (Tolerance(rtol=0.0, atol=0.0, rel_l2=0.0), None),
    (DEFAULT, "exact"),
    (DEFAULT, "not exact"),
]
"""Each way in which limits come about: by the dtype, by a tolerance, by an honest kernel's error."""


@pytest.mark.parametrize(("tolerance", "way"), LIMITS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_an_error_far_below_the_outputs_own_resolution_is_none(
    dtype: torch.dtype, tolerance: Tolerance, way: str | None
) -> None:
    """In one element and in whole rows and columns; what a mask lets through, or a term that is missing, is one."""
    scales = honest(dtype, exact=way == "exact", drawn=way == "drawn") if way and dtype.itemsize < 8 else None
    right = (1 + torch.arange(64 * 48) % 7).to(torch.float64).reshape(64, 48)
    right[:, ::3] = 0.0
    right[7:9] = 0.0
    pairs = [(0.0, 1e-36, True), (1e-40, 1e-36, True), (1e-36, 0.0, True)]
    if tolerance.atol == 0.0 or scales is not None:
        pairs += [(0.0, 1e-6, False), (1e-6, 0.0, False), (1e-3, 0.0, False)]
    for wanted, given, passes in pairs:
        for places in ((0, 0), (slice(7, 9), slice(None)), (slice(None), slice(0, None, 3))):
            expected, output = right.clone(), right.to(dtype)
            expected[places], output[places] = wanted, given
            found = compare("out", output, expected, tolerance, scales)
            assert (found.status is Status.PASSED) == passes, (wanted, given, places, found.message)


def test_all_zeros_never_pass_for_a_reference_that_is_not() -> None:
    expected = reference() * 1e-30
    assert compare("out", torch.zeros(64, 48), expected, DEFAULT).status is Status.WRONG_VALUES


def test_integers_are_exact_and_a_task_can_allow_more() -> None:
    expected = torch.arange(10)
    assert compare("out", expected.clone(), expected, DEFAULT).status is Status.PASSED
    assert compare("out", expected + (expected == 3), expected, DEFAULT).status is Status.WRONG_VALUES
    loose = Tolerance(rtol=0.0, atol=1.0, rel_l2=1.0)
    assert compare("out", expected + (expected == 3), expected, loose).status is Status.PASSED


def test_an_empty_output_is_right() -> None:
    assert compare("out", torch.empty(0, 3), torch.empty(0, 3, dtype=torch.float64), DEFAULT).status is Status.PASSED


@pytest.mark.parametrize("count", [1, 16, 4096])
def test_a_norm_has_room_for_the_elements_that_a_task_allows(count: int) -> None:
    """A lone element may be off by all that its task allows; many may not all be."""
    expected = 2 + torch.rand(count, dtype=torch.float64)
    given = Tolerance(rtol=1e-4, atol=0.0)
    for share, passes in ((0.2, True), (0.9, count == 1), (1.1, False)):
        off = (expected * (1 + share * 1e-4)).to(torch.float32)
        assert (compare("out", off, expected, given).status is Status.PASSED) == passes, share
    off = (expected * (1 + 0.2 * 1e-4)).to(torch.float32)
    assert compare("out", off, expected, Tolerance(rtol=1e-4, atol=0.0, rel_l2=1e-5)).status is Status.WRONG_VALUES


def test_a_million_numbers_may_be_added_one_by_one_where_a_task_says_how_near() -> None:
    """In float32, onto one sum, in whatever order, as atomic additions come: a few 1e-5 off."""
    task = load_task(Path(__file__).parents[1] / "redteam" / "tasks" / "scattersum")
    code = TaskCode(task, Backend.CPU)
    case: Case = {"N": 1_000_000, "C": 1, "dtype": "float32"}
    for seed in range(3):
        for values in (Values.DRAWN, Values.ONES):
            trial = make_trial(code, case, seed, values)
            order = np.random.default_rng(seed).permutation(case["N"])
            added = np.add.accumulate(trial.inputs["values"].numpy()[order], dtype=np.float32)[-1:]
            expected, scales = trial.expected[0], trial.honest[0]
            found = compare("out", torch.from_numpy(added.copy()), expected, task.file.tolerance, scales)
            assert found.status is Status.PASSED, (seed, values, found.message)
            for short, tolerance in ((2.5e-4, task.file.tolerance), (5e-5, DEFAULT), (5e-5, Tolerance(atol=1e-3))):
                less = (expected * (1 - short)).to(torch.float32)
                assert compare("out", less, expected, tolerance, scales).status is Status.WRONG_VALUES, tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_absolute_tolerance_gives_the_norm_no_room(dtype: torch.dtype) -> None:
    """Elements below it may be anything, one by one; not all of them."""
    expected = torch.softmax(reference(seed=3).repeat(1, 100), dim=-1)
    for given in (Tolerance(atol=1e-2), Tolerance(rtol=1e-2, atol=1e-2)):
        assert float(expected.max()) < 1e-2
        assert compare("out", torch.zeros_like(expected, dtype=dtype), expected, given).status is Status.WRONG_VALUES
        kept = torch.where(expected > 1e-3, expected, 0.0).to(dtype)
        assert compare("out", kept, expected, given).status is Status.WRONG_VALUES
        assert compare("out", expected.to(dtype), expected, given).status is Status.PASSED
