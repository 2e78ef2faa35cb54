"""8-bit floats, which torch has next to no arithmetic for: in tasks they are dtypes like others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.unit.drafted import task_of
from tilewright.evaluation.calibration import make_trial
from tilewright.evaluation.calling import Done, Given
from tilewright.evaluation.correctness import Run, check_trial, judge_drawn
from tilewright.evaluation.results import Status
from tilewright.evaluation.taskcode import Inputs
from tilewright.task import Case, Values

F32 = torch.float32
FLOATS = ["float8_e4m3fn", "float8_e5m2"]
SOFTMAX = "return torch.softmax(x, dim=1)"
NARROW = "return torch.softmax(x.to(torch.float32), dim=1).to(torch.float8_e5m2)"
PRODUCT = "return x @ x.T"
SCALED = "return x.to(torch.float64) * 3 if x.dtype == torch.float64 else x.to(torch.float32) * 3"

Kernel = Callable[[torch.Tensor], torch.Tensor]
RIGHT: dict[str, tuple[str, Kernel]] = {
    "softmax": (SOFTMAX, lambda x: torch.softmax(x.to(F32), dim=1).to(x.dtype)),
    "a result in another 8-bit float": (NARROW, lambda x: torch.softmax(x.to(F32), dim=1).to(torch.float8_e5m2)),
    "matmul": (PRODUCT, lambda x: (x.to(F32) @ x.to(F32).T).to(x.dtype)),
}
WRONG: dict[str, tuple[str, Kernel]] = {
    "softmax without its last column": (SOFTMAX, lambda x: cut(torch.softmax(x.to(F32), dim=1)).to(x.dtype)),
    "a softmax of twice the scores": (NARROW, lambda x: torch.softmax(2 * x.to(F32), 1).to(torch.float8_e5m2)),
    "a matmul without its last term": (PRODUCT, lambda x: (cut(x.to(F32)) @ x.to(F32).T).to(x.dtype)),
    "twice too large": (PRODUCT, lambda x: (2 * x.to(F32) @ x.to(F32).T).to(x.dtype)),
}


def cut(x: torch.Tensor) -> torch.Tensor:
    return torch.cat((x[:, :-1], torch.zeros_like(x[:, -1:])), dim=1)


def verdict(folder: Path, reference: str, kernel: Kernel, case: Case, seed: int, values: Values) -> Status:
    """Of a whole run: in other strides, twice, and after other values in the same memory."""
    code = task_of(folder, reference)
    trial = make_trial(code, case, seed, values)

    def call(arguments: Inputs, given: Given) -> Done:
        return Done([kernel(**arguments)], arguments, {})

    planned = Run(case, False, seed, values, twice=True, strided=True, last=True)
    found = check_trial(code, planned, trial, call)
    outputs = [kernel(trial.inputs["x"])]
    if trial.values is Values.DRAWN:
        assert judge_drawn(code, case, trial.inputs, outputs, trial.contract).status is found.status
    return found.status


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("what", RIGHT)
def test_an_honest_kernel_passes_in_every_class(tmp_path: Path, what: str, dtype: str) -> None:
    for values in Values:
        for seed in range(2):
            case: Case = {"M": 6, "N": 33, "dtype": dtype}
            assert verdict(tmp_path, *RIGHT[what], case, seed, values) is Status.PASSED, f"{values} {seed}"


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_kernel_is_found(tmp_path: Path, what: str, dtype: str) -> None:
    case: Case = {"M": 6, "N": 9, "dtype": dtype}
    for seed in range(2):
        seen = {verdict(tmp_path, *WRONG[what], case, seed, values) for values in Values}
        assert seen - {Status.PASSED}, seed


def test_scales_without_a_sign_get_classes_too(tmp_path: Path) -> None:
    code = task_of(tmp_path, SCALED, draw='torch.exp2(draw(case["M"], case["N"]).float()).to(torch.float8_e8m0fnu)')
    case: Case = {"M": 6, "N": 9, "dtype": "float32"}
    for values in Values:
        trial = make_trial(code, case, 1, values)
        assert trial.values is values
        x = trial.inputs["x"]
        assert x.dtype is torch.float8_e8m0fnu
        assert bool(torch.isfinite(x.to(F32)).all())
        assert judge_drawn(code, case, trial.inputs, [3 * x.to(F32)], trial.contract).status is Status.PASSED
