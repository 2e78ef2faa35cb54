"""What is computed while kernels are withheld, and what results owe to earlier calls; candidates are functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import SCALE_KERNEL, SCALE_TASK, SCALE_TOML
from tilewright.evaluation.calling import Call, Done, Given
from tilewright.evaluation.correctness import Run
from tilewright.evaluation.pool import WorkerFailure
from tilewright.evaluation.results import Status
from tilewright.evaluation.statelessness import depends_on_earlier_calls
from tilewright.evaluation.taskcode import Inputs, TaskCode
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
    """The way to call a function that a worker has: what it is called on first lies in the same tensor."""

    def call(arguments: Inputs, given: Given) -> Done:
        x = (given.before or arguments)["x"].clone()
        outputs = [function(x, arguments["factor"])]
        if given.before is not None:
            x.copy_(arguments["x"])
            outputs = [function(x, arguments["factor"])]
        return Done(outputs, arguments, {})

    return call


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


class Keeping:
    """Keeps results by what `key` makes of a tensor."""

    def __init__(self, key: Callable[[torch.Tensor], Any]) -> None:
        self._key = key
        self._seen: dict[Any, Any] = {}

    def __call__(self, x: torch.Tensor, factor: float) -> torch.Tensor:
        return self._seen.setdefault(self._key(x), (x, x * factor))[1]


class Counting:
    """Another rounding from the second call on."""

    def __init__(self) -> None:
        self._calls = 0

    def __call__(self, x: torch.Tensor, factor: float) -> torch.Tensor:
        self._calls += 1
        return x * factor * (1 + 2.0**-22 * (self._calls > 1))


STATEFUL: dict[str, Callable[[], Function]] = {
    "kept by address": lambda: Keeping(lambda x: x.data_ptr()),
    "kept by identity": lambda: Keeping(id),
    "kept by shape": lambda: Keeping(lambda x: x.shape),
    "another result later": Counting,
}


@pytest.mark.parametrize("what", list(STATEFUL))
def test_a_result_that_depends_on_earlier_calls_is_found(code: TaskCode, what: str) -> None:
    make = STATEFUL[what]
    found = depends_on_earlier_calls(code, RUNS, called(make()), called(make()))
    assert "a fresh process gives another result than one that was called often before" in found


def test_a_result_that_follows_from_the_arguments_is_fine(code: TaskCode) -> None:
    spaces: dict[Any, torch.Tensor] = {}

    def through_a_workspace(x: torch.Tensor, factor: float) -> torch.Tensor:
        return torch.mul(x, factor, out=spaces.setdefault(x.shape, torch.empty_like(x))).clone()

    assert depends_on_earlier_calls(code, RUNS, called(through_a_workspace), called(lambda x, factor: x * factor)) == ""


def test_draws_of_other_lengths_are_called_apart(tmp_path: Path) -> None:
    """Where a task's lengths follow from the seed, no call comes before in the same memory; results are compared."""
    drawn = SCALE_TASK.replace('case["N"], gen', "int(torch.randint(1, 999, (1,), generator=generator)), gen")
    for name, text in (("task.toml", SCALE_TOML), ("task.py", drawn), ("kernel.py", SCALE_KERNEL)):
        (tmp_path / name).write_text(text)
    code = TaskCode(load_task(tmp_path), Backend.CPU)
    assert depends_on_earlier_calls(code, RUNS, called(lambda x, f: x * f), called(lambda x, f: x * f)) == ""
    assert depends_on_earlier_calls(code, RUNS, called(Counting()), called(Counting())) != ""


def test_an_argument_that_is_drawn_or_left_out_is_no_memory_to_call_in_before(tmp_path: Path) -> None:
    drawn = SCALE_TASK.replace('"factor": 3.0}', '"factor": 3.0, "bias": maybe(generator)}')
    drawn = drawn.replace("def reference(x, factor)", "def reference(x, factor, bias)") + MAYBE
    for name, text in (("task.toml", SCALE_TOML), ("task.py", drawn), ("kernel.py", SCALE_KERNEL)):
        (tmp_path / name).write_text(text)
    code, ways = TaskCode(load_task(tmp_path), Backend.CPU), set()

    def call(arguments: Inputs, given: Given) -> Done:
        if given.before is not None:
            ways.add((arguments["bias"] is None, given.before["bias"] is None))
        return Done([arguments["x"] * arguments["factor"]], arguments, {})

    for seed in range(16):
        runs = [Run({"N": 500, "dtype": "float32"}, False, seed)]
        assert depends_on_earlier_calls(code, runs, call, call) == ""
    assert ways == {(True, True), (False, False)}


MAYBE = """

def maybe(generator):
    return torch.ones(1) if torch.randint(2, (1,), generator=generator) else None
"""
