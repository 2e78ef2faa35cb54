"""References that are not finite, or out of range, on some elements: the others are compared, in every class."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.unit.drafted import task_of
from tilewright.evaluation.calibration import make_trial
from tilewright.evaluation.comparison import compare
from tilewright.evaluation.correctness import judge
from tilewright.evaluation.results import Status
from tilewright.evaluation.taskcode import TaskCode
from tilewright.task import Case, Tolerance, Values

F32 = torch.float32
CASE: Case = {"M": 12, "N": 9, "dtype": "bfloat16"}
Kernel = Callable[[torch.Tensor], torch.Tensor]

SEEN = (
    "place = torch.arange(x.shape[1])\n    seen = place <= torch.arange(x.shape[0])[:, None] + x.shape[1] - x.shape[0]"
)
MASKED = f'{SEEN}\n    return torch.softmax(x.masked_fill(~seen, float("-inf")), dim=1)'
LEAST = f"{SEEN}\n    return x.exp().masked_fill(~seen, torch.finfo(x.dtype).min)"
LOG = "return torch.log(x)"
DIVIDED = "return x / (x[:1] > 0)"


def seen(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(x.shape[1]) <= torch.arange(x.shape[0])[:, None] + x.shape[1] - x.shape[0]


def masked(x: torch.Tensor, lowest: float) -> torch.Tensor:
    rows = x.to(F32).masked_fill(~seen(x), lowest)
    power = torch.where(seen(x), torch.exp(rows - rows.amax(1, keepdim=True)), 0.0)
    return (power / power.sum(1, keepdim=True)).to(x.dtype)


def least(x: torch.Tensor) -> torch.Tensor:
    return x.to(F32).exp().to(x.dtype).masked_fill(~seen(x), torch.finfo(x.dtype).min)


HONEST: dict[str, tuple[str, Kernel]] = {
    "masked rows": (MASKED, lambda x: masked(x, float("-inf"))),
    "the least number": (LEAST, least),
    "the logarithm of what is negative": (LOG, lambda x: x.to(F32).log().to(x.dtype)),
    "divided by zero": (DIVIDED, lambda x: (x.to(F32) / (x[:1] > 0)).to(x.dtype)),
}


@pytest.mark.parametrize("what", HONEST)
def test_every_class_is_run_and_an_honest_kernel_passes(tmp_path: Path, what: str) -> None:
    reference, kernel = HONEST[what]
    code = task_of(tmp_path, reference)
    kept: set[Values] = set()
    for values in Values:
        for seed in range(6):
            trial = make_trial(code, CASE, seed, values)
            kept.add(trial.values)
            found = judge(code.task, [kernel(trial.inputs["x"])], trial.expected, trial.contract, trial.honest)
            assert found.status is Status.PASSED, f"{values} {seed}: {found.message}"
    assert kept >= {*Values} - {Values.ZEROS, Values.TINY}  # the logarithm of 0 is never finite


WRONG: dict[str, tuple[str, Kernel]] = {
    "a sentinel that is not low enough": (MASKED, lambda x: masked(x, -300.0)),
    "1% off beside the least number": (LEAST, lambda x: (least(x).to(F32) * 1.02).clamp(-3e38, 3e38).to(x.dtype)),
    "the wrong branch of a logarithm": (LOG, lambda x: x.to(F32).log().nan_to_num(0.0).to(x.dtype)),
    "the wrong base of a logarithm": (LOG, lambda x: x.to(F32).log2().to(x.dtype)),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_kernel_is_found_beside_what_is_undefined(tmp_path: Path, what: str) -> None:
    reference, kernel = WRONG[what]
    code = task_of(tmp_path, reference)

    def fails(values: Values, seed: int) -> bool:
        trial = make_trial(code, CASE, seed, values)
        output = kernel(trial.inputs["x"])
        return judge(code.task, [output], trial.expected, trial.contract, trial.honest).status is not Status.PASSED

    assert any(fails(values, seed) for seed in range(6) for values in Values)


def test_a_trial_where_nothing_is_finite_gives_way_to_the_tasks_own_draw(tmp_path: Path) -> None:
    code: TaskCode = task_of(tmp_path, LOG)
    assert make_trial(code, CASE, 1, Values.ZEROS).values is Values.DRAWN
    assert not make_trial(task_of(tmp_path, "return x / 0 * 0"), CASE, 1, Values.ONES).informative


@pytest.mark.parametrize(
    ("dtype", "wanted", "found", "right"),
    [
        (torch.bfloat16, float("nan"), 0.0, False),
        (torch.bfloat16, float("inf"), 3e38, False),
        (torch.bfloat16, -1.7e308, -3.3e38, True),
        (torch.bfloat16, -1.7e308, float("-inf"), True),
        (torch.bfloat16, -1.7e308, 3.3e38, False),
        (torch.bfloat16, -1.7e308, 0.0, False),
        (torch.float8_e4m3fn, 600.0, 448.0, True),
        (torch.float8_e4m3fn, 600.0, float("nan"), True),
        (torch.float8_e4m3fn, float("-inf"), -448.0, True),
        (torch.float8_e5m2, float("inf"), 57344.0, True),
        (torch.float8_e4m3fn, 600.0, -448.0, False),
    ],
)
def test_what_is_out_of_range_may_saturate(dtype: torch.dtype, wanted: float, found: float, right: bool) -> None:
    """A conversion may saturate at the end of the dtype's range; for 8-bit floats, an infinity is beyond it."""
    expected = torch.tensor([1.0, wanted], dtype=torch.float64)
    actual = torch.tensor([1.0, found]).to(dtype)
    assert (compare("out", actual, expected, Tolerance()).status is Status.PASSED) is right
    beside = torch.tensor([1.5, found]).to(dtype)
    assert compare("out", beside, expected, Tolerance()).status is Status.WRONG_VALUES
