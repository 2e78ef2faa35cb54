"""Cases by device programs: the referee's side as it is, on a replayer whose driver is a stand-in."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.programs.made import OUT, W, X, clear, copied, fill, program
from tilewright.evaluation.calibration import Trial
from tilewright.evaluation.pool import WorkerFailure
from tilewright.evaluation.results import Status
from tilewright.evaluation.seeds import Seeds
from tilewright.evaluation.snapshot import Snapshot
from tilewright.evaluation.taskcode import TaskCode
from tilewright.programs.model import Program
from tilewright.referee import benchmark, candidates
from tilewright.referee.arguments import drawn_inputs, public_inputs
from tilewright.referee.benchmark import CANDIDATE, INCUMBENT, ProgramBench, values_of
from tilewright.referee.candidates import Programs
from tilewright.referee.capture_worker import EntryFailed, InProcess
from tilewright.referee.captures import CallCaptured
from tilewright.referee.replayer import Fault, Replayer
from tilewright.task import Backend, Case, TaskError, Values, load_task

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
TOML = """
name = "first"
entry = "kernel:run"
editable = ["kernel.py"]
frontend = "torch"
{more}
{cases}
"""
CODE = """
import torch
from tilewright.task import Work

def make_inputs(case, generator):
    x = torch.randn(case["N"], generator=generator, device=generator.device)
    return {"x": x, "w": torch.randn(4, generator=generator, device=generator.device), "scale": 2.0 + float(x[0])}

def reference(x, w, scale):
    y = x.clone()
    y[0] = 0
    return y

def work(case):
    return Work(8 * case["N"], case["N"], "float32")
"""
CASE = {"N": 256}
BARE = """
import torch
from tilewright.task import Work

def make_inputs(case, generator):
    return {"x": torch.randn(case["N"], generator=generator, device=generator.device)}

def reference(x):
    y = x.clone()
    y[0] = 0
    return y

def work(case):
    return Work(8 * case["N"], case["N"], "float32")
"""


def task_code(folder: Path, code: str = BARE, more: str = "", cases: str = "[[cases]]\nN = 256") -> TaskCode:
    folder.mkdir(exist_ok=True)
    (folder / "task.toml").write_text(TOML.format(more=more, cases=cases))
    (folder / "task.py").write_text(code)
    (folder / "kernel.py").write_text("def run(x): ...\n")
    return TaskCode(load_task(folder), Backend.CPU)


@pytest.fixture
def bench(replayer: Replayer, tmp_path: Path) -> ProgramBench:
    return ProgramBench(task_code(tmp_path / "task"), replayer, error=0.01)


def taking(us: int) -> Program:
    """A right program: a copy, whose first number is then made nearly zero, which takes so many microseconds."""
    return program([copied(), fill(OUT, us)])


def test_the_same_program_is_timed_alone_and_gains_nothing(bench: ProgramBench) -> None:
    timed = bench.case(CASE, [taking(20)], [taking(20)], Seeds("secret"))
    values = values_of(timed, alone=False)
    assert timed.same
    assert len(timed.found.rounds) == 8
    assert [values[name] for name in ("speedup", "speedup_low", "speedup_high", "same", "bounded")] == [1, 1, 1, 1, 0]
    assert values["latency_ms"] == pytest.approx(values["incumbent_ms"], rel=0.5)


def test_someone_looks_on_after_each_round(replayer: Replayer, tmp_path: Path) -> None:
    def look() -> None:
        looks.append(replayer.pid)
        if len(looks) == 3:
            raise WorkerFailure(Status.VOID, "another process used the GPU meanwhile")

    looks: list[int | None] = []
    bench = ProgramBench(task_code(tmp_path / "task"), replayer, after_round=look)
    with pytest.raises(WorkerFailure, match="another process"):
        bench.case(CASE, [taking(20)], [taking(30)], Seeds("secret"))
    assert looks == [replayer.pid] * 3
    assert looks[0] is not None


@pytest.mark.parametrize(
    ("nodes", "status"),
    [
        ([clear(width=256)], Status.WRONG_VALUES),  # zeros, whatever the input
        ([fill(OUT, 20)], Status.NON_FINITE),  # all else is as it was: poison
        ([copied(width=1020), fill(OUT, 20)], Status.NON_FINITE),
    ],
)
def test_a_program_that_is_wrong_on_secret_values_is_refused(
    bench: ProgramBench, nodes: list[Any], status: Status
) -> None:
    with pytest.raises(WorkerFailure, match="N=256, in a call that was replayed on other values") as failed:
        bench.case(CASE, [program(nodes)], [taking(30)], Seeds("secret"))
    assert failed.value.status is status


def test_an_incumbent_that_is_wrong_is_not_the_candidates_fault(bench: ProgramBench) -> None:
    """It was judged when it was kept; what counts now is the candidate's."""
    assert bench.case(CASE, [taking(20)], [program([copied(), clear(X), fill(OUT, 30)])], Seeds("secret")).found.rounds


def test_every_class_of_values_is_replayed_and_judged(bench: ProgramBench, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = list[Values]()
    real = benchmark.make_trial

    def noted(code: TaskCode, case: Case, seed: int, values: Values, drawn: Any) -> Trial:
        judged.append(values)
        return real(code, case, seed, values, drawn)

    monkeypatch.setattr(benchmark, "make_trial", noted)
    assert bench.judge_classes(CASE, taking(20), taking(30), Seeds("secret")) == []
    assert set(judged) == set(Values) - {Values.DRAWN}
    assert bench.judge_classes(CASE, taking(20), None, Seeds("secret")) == []


LAST_IS_ZERO = program([copied(width=1020), fill(OUT), clear(OUT + 1020, 1)])
"""Wrong in the last number where that is not 0."""


def test_a_program_that_is_wrong_on_a_class_of_values_is_refused(bench: ProgramBench) -> None:
    for incumbent in (taking(30), None):
        with pytest.raises(WorkerFailure, match=r"N=256 \(\w+ values\), replayed: output: 1 of 256 elements") as failed:
            bench.judge_classes(CASE, LAST_IS_ZERO, incumbent, Seeds("secret"))
        assert failed.value.status is Status.WRONG_VALUES
    with pytest.raises(WorkerFailure, match=r"values\), replayed: illegal-access") as failed:
        bench.judge_classes(CASE, broken(taking(20)), taking(30), Seeds("secret"))
    assert failed.value.status is Status.CRASHED


def test_a_program_that_both_versions_have_is_not_charged_to_one_of_them(bench: ProgramBench) -> None:
    wrong = program([clear(width=256)])
    for one in (wrong, broken(taking(20))):
        with pytest.raises(WorkerFailure, match="both versions") as failed:
            bench.case(CASE, [one], [one], Seeds("secret"))
        assert failed.value.status is Status.VOID


def test_the_same_program_with_other_contents_is_charged_for_what_it_holds(bench: ProgramBench) -> None:
    """The first number of the outputs comes from memory that was filled before the call."""
    right, wrong = (program([copied(), copied(source=W, width=4)], held=held * 64) for held in (b"\x00", b"\x40"))
    assert bench.case(CASE, [right], [wrong], Seeds("secret")).same
    for incumbent, status in ((right, Status.WRONG_VALUES), (wrong, Status.VOID)):
        with pytest.raises(WorkerFailure) as failed:
            bench.case(CASE, [wrong], [incumbent], Seeds("secret"))
        assert failed.value.status is status


def test_a_fault_without_a_rest_leaves_the_gain_as_it_is(bench: ProgramBench, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Any:
        raise Fault("hang", None, "the GPU was not done in time")

    monkeypatch.setattr(Replayer, "blocks", failing)
    with pytest.raises(InProcess, match="not measured without a rest: the GPU was not done in time"):
        bench.sustained(CASE, taking(60), taking(90), Seeds("secret"), (92.0, 62.0))


def test_a_gain_is_measured_without_a_rest_where_the_clock_falls(
    bench: ProgramBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = taking(60), taking(90)
    monkeypatch.setattr(benchmark, "BLOCK_S", 0.002)
    assert bench.sustained(CASE, *versions, Seeds("secret"), (92.0, 62.0)) is None
    monkeypatch.setattr(benchmark, "FALLEN", 1.5)
    found = bench.sustained(CASE, *versions, Seeds("secret"), (92.0, 62.0))
    assert found is not None
    assert found.low <= found.speedup <= found.high
    assert found.speedup == pytest.approx(92 / 62)
    assert (found.mhz, found.joules) == (2000, None)
    answers = [100.0, 170.0]
    bench._joules = lambda: answers.pop(0)
    found = bench.sustained(CASE, *versions, Seeds("secret"), (92.0, 62.0))
    assert found is not None
    busy_us = 2 * benchmark.BLOCK_QUADS * sum(us * int(2000 / us) for us in (92.0, 62.0))
    assert found.joules == pytest.approx(70 / busy_us * 62, rel=0.05)
    assert str(found).endswith(f"at 2000 MHz, {found.joules:.3g} J a call")
    assert bench.sustained(CASE, taking(10), taking(9), Seeds("secret"), (11.0, 12.0)) is None  # it waits for the host


def test_a_program_differs_from_itself_by_no_more_than_the_clock_resolves(bench: ProgramBench) -> None:
    assert 0 <= bench.resolution(CASE, taking(60), Seeds("secret")) < 0.02


def test_wrong_outputs_are_not_charged_where_the_incumbents_are_wrong_too(bench: ProgramBench) -> None:
    for incumbent, status in (
        (program([clear(width=256), fill(OUT, 30)]), Status.VOID),
        (taking(30), Status.WRONG_VALUES),
    ):
        with pytest.raises(WorkerFailure) as failed:
            bench.case(CASE, [program([clear(width=256)])], [incumbent], Seeds("secret"))
        assert failed.value.status is status
        assert ("both versions are wrong" in str(failed.value)) == (status is Status.VOID)


def test_a_class_on_which_the_incumbent_is_wrong_too_says_nothing(bench: ProgramBench) -> None:
    for incumbent in (LAST_IS_ZERO, broken(taking(30))):
        left = bench.judge_classes(CASE, LAST_IS_ZERO, incumbent, Seeds("secret"))
        assert left[-1] == "N=256 (offset values): the incumbent is wrong on the same inputs"
        assert len(left) == len(Values) - 2, "all but zeros"


def test_a_class_that_does_not_fit_is_named(bench: ProgramBench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise Fault("out-of-memory", None, "it takes too much")

    monkeypatch.setattr(bench._replayer, "alone", full)
    left = bench.judge_classes(CASE, taking(20), None, Seeds("secret"))
    assert left[-1] == "N=256 (offset values): the replayer: it takes too much"


def broken(program: Program) -> Program:
    """A program that touches memory which is not there."""
    nodes = tuple(
        node.model_copy(update={"parameters": ((1 << 44).to_bytes(8, "little"), node.parameters[1])})
        if node.kind == "kernel"
        else node
        for node in program.layout.nodes
    )
    return Program(program.layout.model_copy(update={"nodes": nodes}), program.images, program.held)


def test_numbers_are_drawn_once_and_constants_stay(tmp_path: Path) -> None:
    code = task_code(tmp_path / "task", CODE, 'constant = ["w"]')
    public, drawn = public_inputs(code, CASE), drawn_inputs(code, CASE, 5)
    assert drawn["scale"] == public["scale"] != code.inputs(CASE, 5)["scale"]
    assert torch.equal(drawn["w"], public["w"])
    assert not torch.equal(drawn["x"], public["x"])
    with pytest.raises(TaskError, match="constant names 'v', and make_inputs gives no such argument; it gives x, w"):
        task_code(tmp_path / "other", CODE, 'constant = ["v"]').inputs(CASE, 1)


def test_inputs_whose_shapes_follow_the_draw_are_no_program(tmp_path: Path) -> None:
    code = task_code(
        tmp_path / "task", BARE.replace('torch.randn(case["N"]', "torch.randn(3 + generator.initial_seed()")
    )
    with pytest.raises(InProcess, match="other shapes"):
        drawn_inputs(code, CASE, 5)


def test_programs_are_captured_once_for_a_candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, asked = task_code(tmp_path / "task"), []

    def capture(server: Any, entry: Any, calls: Any, limit_s: float, *_: Any) -> list[CallCaptured]:
        asked.append((entry.folder, len(calls), [len(draw.tensors[0]) for draw in calls[0]], limit_s))
        if entry.folder.parent.name == "wrong":
            raise EntryFailed("raised", "ValueError: no")
        return [CallCaptured((taking(20),))]

    monkeypatch.setattr(candidates, "capture_calls", capture)
    snapshots = {name: Snapshot(id=name, root=tmp_path / name, task=Path("t"), cache=tmp_path / "c") for name in "ab"}
    programs = Programs(None)  # type: ignore[arg-type]
    for name in "aabba":
        programs.of(code, snapshots[name], [CASE], "candidate")
    assert [folder.parent.name for folder, *_ in asked] == ["a", "b", "a"], "the last one's are known"
    assert asked[0] == (tmp_path / "a" / "t", 1, [1024, 1024], 60.0)
    programs.anew(code, snapshots["a"], [CASE], "candidate")
    assert len(asked) == 4
    wrong = Snapshot(id="w", root=tmp_path / "wrong", task=Path("t"), cache=tmp_path / "c")
    with pytest.raises(WorkerFailure, match="ValueError: no") as failed:
        programs.of(code, wrong, [CASE], "incumbent")
    assert (failed.value.status, failed.value.label) == (Status.RAISED, "incumbent")


@pytest.mark.parametrize("arm", [None, INCUMBENT, CANDIDATE])
@pytest.mark.parametrize("kind", ["refused", "out-of-memory"])
def test_a_candidate_that_is_alone_is_at_fault_on_either_arm(kind: Any, arm: int | None) -> None:
    fault = Fault(kind, arm, "no")
    alone, beside = (ProgramBench._failure(CASE, fault, alone) for alone in (True, False))
    assert isinstance(alone, InProcess)
    assert isinstance(beside, InProcess)
    assert (alone.arm, beside.arm) == (CANDIDATE, CANDIDATE if kind == "out-of-memory" else arm)
