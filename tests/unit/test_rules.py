"""What is computed while kernels are withheld; candidates are functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.conftest import SCALE_KERNEL, SCALE_TASK, SCALE_TOML
from tilewright.evaluation.calling import Call, Done
from tilewright.evaluation.correctness import Run
from tilewright.evaluation.pool import WorkerFailure
from tilewright.evaluation.results import Status
from tilewright.evaluation.taskcode import TaskCode
from tilewright.evaluation.withholding import computed_elsewhere
from tilewright.task import Backend, load_task

RUNS = [Run({"N": size, "dtype": "float32"}, False, seed) for size, seed in ((500, 8), (500, 16), (300, 24))]
Function = Callable[[torch.Tensor, float], torch.Tensor]


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> TaskCode:
    folder = tmp_path_factory.mktemp("scale")
    for name, text in (("task.toml", SCALE_TOML), ("task.py", SCALE_TASK), ("kernel.py", SCALE_KERNEL)):
        (folder / name).write_text(text)
    return TaskCode(load_task(folder), Backend.CPU)


def called(function: Function) -> Call:
    """The way to call a function that a worker has."""
    return lambda arguments, given: Done([function(arguments["x"].clone(), arguments["factor"])], arguments, {})


def half(x: torch.Tensor, factor: float) -> torch.Tensor:
    out = torch.full_like(x, float("nan"))
    out[: len(x) // 2] = x[: len(x) // 2] * factor
    return out


ELSEWHERE: dict[str, tuple[Function, str]] = {
    "all of it": (lambda x, factor: x * factor, "500: 100% of an output is right"),
    "half of it": (half, "500: 50% of an output is right"),
    "half of it in a lower precision": (lambda x, factor: half(x.half(), factor).float(), "50% of an output is right"),
}


@pytest.mark.parametrize("what", list(ELSEWHERE))
def test_what_is_right_without_kernels_was_computed_elsewhere(code: TaskCode, what: str) -> None:
    function, words = ELSEWHERE[what]
    found = computed_elsewhere(code, RUNS, called(function))
    assert words.partition(":")[0] in found
    assert words.rpartition(":")[2].strip() in found
    assert 'library_calls = "forbid"' in found


def fails(status: Status) -> Function:
    def fail(x: torch.Tensor, factor: float) -> torch.Tensor:
        raise WorkerFailure(status, "")

    return fail


NOTHING: dict[str, Function] = {
    "never written": lambda x, factor: torch.full_like(x, float("nan")),
    "zeros": lambda x, factor: torch.zeros_like(x),
    "a copy of the input": lambda x, factor: x.clone(),
    "another shape": lambda x, factor: x[1:] * factor,
    "an error": fails(Status.RAISED),
}


@pytest.mark.parametrize("what", list(NOTHING))
def test_an_output_that_only_waits_for_its_kernel_was_not_computed(code: TaskCode, what: str) -> None:
    assert computed_elsewhere(code, RUNS, called(NOTHING[what])) == ""


def test_a_copied_input_that_is_right_at_places_was_not_computed(tmp_path: Path) -> None:
    positive = SCALE_TASK.replace("x * factor", "torch.where(x > 0, x, x * factor)")
    for name, text in (("task.toml", SCALE_TOML), ("task.py", positive), ("kernel.py", SCALE_KERNEL)):
        (tmp_path / name).write_text(text)
    code = TaskCode(load_task(tmp_path), Backend.CPU)
    assert computed_elsewhere(code, RUNS, called(lambda x, factor: x.clone())) == ""
    assert computed_elsewhere(code, RUNS, called(lambda x, factor: torch.where(x > 0, x, x * factor))) != ""


def test_a_void_run_is_not_taken_for_an_honest_one(code: TaskCode) -> None:
    with pytest.raises(WorkerFailure):
        computed_elsewhere(code, RUNS, called(fails(Status.VOID)))
