"""The programs of a candidate in each case of a task, where some cases have none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.programs.made import OUT, copied, fill, program
from tilewright.evaluation.pool import WorkerFailure
from tilewright.evaluation.results import Status
from tilewright.evaluation.snapshot import Snapshot
from tilewright.evaluation.taskcode import TaskCode
from tilewright.referee import benchmark
from tilewright.referee.benchmark import Programs
from tilewright.referee.captures import Arguments, CallCaptured, EntryFailed, InProcess, OtherLaunches
from tilewright.task import Backend, TaskError, load_task

TOML = """
name = "first"
entry = "kernel:run"
editable = ["kernel.py"]
frontend = "torch"

[[cases]]
N = 256
"""
CODE = """
import torch
from tilewright.task import Work

def make_inputs(case, generator):
    length = case["N"] + (generator.initial_seed() if case.get("ragged") else 0)
    x = torch.randn(length, generator=generator, device=generator.device)
    return {"x": x, "sizes": [1, 2] if case.get("listed") else 3}

def reference(x, sizes):
    return x * sizes

def work(case):
    return Work(8 * case["N"], case["N"], "float32")
"""
PLAIN, RAGGED, LISTED = {"N": 4}, {"N": 4, "ragged": True}, {"N": 4, "listed": True}
SNAPSHOT = Snapshot(id="a", root=Path("a"), task=Path("t"), cache=Path("c"))
ONE = program([copied(), fill(OUT, 20)])


@pytest.fixture
def code(tmp_path: Path) -> TaskCode:
    (tmp_path / "task.toml").write_text(TOML)
    (tmp_path / "task.py").write_text(CODE)
    (tmp_path / "kernel.py").write_text("def run(x, sizes): ...\n")
    return TaskCode(load_task(tmp_path), Backend.CPU)


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many calls were captured, each time: the first is a program, and the others are none."""
    asked: list[int] = []

    def capture(server: Any, entry: Any, draws: Sequence[tuple[Arguments, Arguments]], *_: Any) -> list[CallCaptured]:
        asked.append(len(draws))
        found = [CallCaptured(ONE, peak_bytes=7), *[CallCaptured(None, "it waits for the host")] * len(draws)]
        return found[: len(draws)]

    monkeypatch.setattr(benchmark, "capture_calls", capture)
    return asked


def programs() -> Programs:
    return Programs(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("places", [[0], [1], [2], [0, 2], [0, 1]])
def test_a_case_whose_shapes_follow_the_draw_has_no_program_and_the_others_have(
    code: TaskCode, captured: list[int], places: list[int]
) -> None:
    cases = [RAGGED if number in places else PLAIN | {"part": number} for number in range(3)]
    found = programs().of(code, SNAPSHOT, cases, "candidate")
    why = "its inputs have other shapes, strides or dtypes from draw to draw"
    assert [found[number] for number in places] == [CallCaptured(None, why)] * len(places)
    others = [found[number] for number in range(3) if number not in places]
    assert others == [CallCaptured(ONE, peak_bytes=7), CallCaptured(None, "it waits for the host")][: len(others)]
    assert captured == [3 - len(places)]


def test_without_a_case_that_can_be_no_worker_is_started(code: TaskCode, captured: list[int]) -> None:
    found = programs().of(code, SNAPSHOT, [RAGGED, RAGGED | {"part": 1}], "candidate")
    assert [one.program for one in found] == [None, None]
    assert captured == []


def test_an_argument_that_no_call_can_take_is_the_tasks_fault(code: TaskCode, captured: list[int]) -> None:
    with pytest.raises(TaskError, match="argument 'sizes' is a list; give tensors, numbers"):
        programs().of(code, SNAPSHOT, [PLAIN, LISTED], "candidate")
    assert captured == []


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (EntryFailed("raised", "ValueError: no"), Status.RAISED),
        (EntryFailed("timeout", "no answer within 5 s"), Status.TIMEOUT),
        (RuntimeError("a worker could not start"), Status.VOID),
        (OtherLaunches("launches other kernels outside capture"), None),
        (InProcess("CUPTI cannot be loaded"), None),
    ],
)
def test_an_ordinary_call_s_failures_are_of_the_arm_that_it_is_of(
    code: TaskCode, monkeypatch: pytest.MonkeyPatch, error: Exception, status: Status | None
) -> None:
    """What it launches is no failure, and neither is that this cannot be recorded."""

    def confirm(server: Any, entry: Any, draws: Sequence[Arguments], programs: Any, limit_s: float) -> None:
        asked.append([[len(data) for data in draw.tensors] for draw in draws])
        raise error

    asked: list[list[list[int]]] = []
    monkeypatch.setattr(benchmark, "confirm_launches", confirm)
    with pytest.raises(WorkerFailure if status else type(error)) as failed:
        programs().confirm(code, SNAPSHOT, [PLAIN, {"N": 8}], [ONE, ONE], "incumbent")
    assert asked == [[[16], [32]]]
    if status:
        assert isinstance(failed.value, WorkerFailure)
        assert (failed.value.status, failed.value.label, str(failed.value)) == (status, "incumbent", str(error))
