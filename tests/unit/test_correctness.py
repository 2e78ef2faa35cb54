"""Which runs a check makes, and what one does beside comparing: other values before, references that tell nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.conftest import SCALE_KERNEL, SCALE_TOML
from tests.unit.test_calibration import task
from tilewright.evaluation.calibration import Trial, make_trial
from tilewright.evaluation.calling import Done, Given
from tilewright.evaluation.correctness import UNCOMPARED, Run, check_trial, need_informative, planned_runs
from tilewright.evaluation.results import CaseCheck, Status
from tilewright.evaluation.seeds import Seeds
from tilewright.evaluation.taskcode import Inputs, TaskCode
from tilewright.task import Backend, Case, TaskError, Values, load_task

F32 = torch.float32


def test_a_plan_has_every_class_and_several_seeds_for_each_shape() -> None:
    *runs, large = planned_runs(task("matmul").task, Backend.CPU, Seeds("a secret"), 3)
    assert large.hidden
    assert large.values is Values.DRAWN
    shapes = {tuple(run.case.items()) for run in runs}
    assert len(shapes) >= 4
    assert {run.values for run in runs} == set(Values)
    for shape in shapes:
        own = [run for run in runs if tuple(run.case.items()) == shape]
        assert len({run.seed for run in own}) >= 5
        assert sum(run.twice for run in own) == 1
    sizes = {run.case["M"] for run in runs if run.hidden}
    assert {1, 300} <= sizes


def test_a_backend_without_a_case_is_named(tmp_path: Path) -> None:
    toml = SCALE_TOML.replace("N = 1048576", 'N = 1048576\nbackend = "cuda"').replace('"cpu"', '"cuda"')
    for name, text in (("task.toml", toml), ("task.py", ""), ("kernel.py", "")):
        (tmp_path / name).write_text(text)
    with pytest.raises(TaskError, match="no case is for backend cpu"):
        planned_runs(load_task(tmp_path), Backend.CPU, Seeds("a secret"), 1)


def test_the_last_run_of_a_shape_is_made_where_other_values_were() -> None:
    code = task("matmul")
    runs = planned_runs(code.task, Backend.CPU, Seeds("a secret"), 1)
    before: dict[int, Inputs | None] = {}
    for run in runs[-6:]:
        trial = make_trial(code, run.case, run.seed, run.values)

        def call(_: Inputs, given: Given, run: Run = run, trial: Trial = trial) -> Done:
            before.setdefault(run.seed, given.before)
            return Done([trial.expected[0].to(torch.bfloat16)], dict(given.inputs), {})

        assert check_trial(code, run, trial, call).status is Status.PASSED
    assert [run.last for run in runs[-6:]] == [False, False, False, False, True, False]  # and the large case
    for run in runs[-6:]:
        other = before[run.seed]
        assert (other is not None) == run.last
        if other is not None:
            own = code.inputs(run.case, run.seed)
            assert all(
                other[name].shape == own[name].shape and not torch.equal(other[name], own[name]) for name in "ab"
            )


FIRST_OF = """
import torch


def make_inputs(case, generator):
    n = int(torch.randint(1, 9, (1,), generator=generator))
    return {"x": torch.randn(case["N"], 3, generator=generator), "n": n}


def reference(x, n):
    return x * 2 if SAME else x[:n] * 2


def work(case):
    return None
"""


@pytest.mark.parametrize("same", [True, False])
def test_no_other_values_come_before_where_they_do_not_fit(tmp_path: Path, same: bool) -> None:
    """The strides of a strided run are theirs, too; where numbers differ, of which shapes may be made, nothing fits."""
    (tmp_path / "task.toml").write_text(SCALE_TOML)
    (tmp_path / "kernel.py").write_text(SCALE_KERNEL)
    text = FIRST_OF.replace("SAME", str(same))
    (tmp_path / "task.py").write_text(
        text.replace("int(torch.randint(1, 9, (1,), generator=generator))", "4") if same else text
    )
    code = TaskCode(load_task(tmp_path), Backend.CPU)
    for seed in range(12):
        run = Run({"N": 16, "dtype": "float32"}, False, seed, strided=True, last=True)
        trial = make_trial(code, run.case, seed)
        seen = []

        def call(arguments: Inputs, given: Given, trial: Trial = trial, seen: list[Given] = seen) -> Done:
            seen.append(given)
            return Done([trial.expected[0].to(F32)], dict(given.inputs), {})

        assert check_trial(code, run, trial, call).status is Status.PASSED
        before = seen[0].before
        assert before is None or same
        if before is not None:
            assert before["x"].stride() == seen[0].inputs["x"].stride()
    assert (before is not None) == same


def test_a_reference_that_tells_nothing_is_refused() -> None:
    case: Case = {"N": 4}
    silent = CaseCheck(case=case, hidden=False, informative=False, status=Status.PASSED)
    telling = CaseCheck(case=case, hidden=False, status=Status.PASSED)
    need_informative([silent, telling])
    with pytest.raises(TaskError, match="on all inputs of N=4, reference is constant"):
        need_informative([silent, silent])
    uncompared = silent.model_copy(update={"message": UNCOMPARED})
    with pytest.raises(TaskError, match="on all inputs of N=4, float32 arithmetic misses the tolerance"):
        need_informative([uncompared, silent])
