"""The survey of variants: inputs that workers map, what is left to the race, and what a look at a variant imports."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import cuda.tile as ct
import pytest
import torch

from tests.conftest import SCALE_KERNEL
from tests.unit import kernels
from tests.unit.test_corpus import _stand_in  # noqa: F401 (the fixture)
from tests.unit.test_launchcode import wanted_of
from tests.unit.test_model import H200, profile
from tilewright.autotune.pruning import MOST_RACED, pruned, unmodelled
from tilewright.autotune.searching import search
from tilewright.evaluation.pool import WorkerFailure
from tilewright.evaluation.results import (
    ORIGINAL,
    BenchmarkResult,
    CorrectnessResult,
    Environment,
    Raced,
    Status,
    Surveyed,
)
from tilewright.evaluation.snapshot import Snapshot
from tilewright.evaluation.surveying import survey
from tilewright.evaluation.tensors import TensorSpec, from_file, to_buffer
from tilewright.gpu.specs import spec_by_arch
from tilewright.interpreter import host
from tilewright.interpreter.hostops import counting
from tilewright.interpreter.numerics import UnsupportedOperation
from tilewright.interpreter.sampling import SAMPLED_BLOCKS
from tilewright.roofline.bounds import Ceilings
from tilewright.roofline.model import CallProfile
from tilewright.session.checkout import Misuse
from tilewright.session.runs import RaceResult, SurveyResult
from tilewright.task import Backend, Task, TaskFile, Work

CASES = [{"N": 1}, {"N": 2}]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(60, dtype=torch.float32).reshape(6, 10).to(torch.bfloat16),
        torch.arange(60).reshape(6, 10)[:, ::3].T,
        torch.empty(0, 3),
    ],
)
def test_a_tensor_in_a_file_is_what_it_was_and_the_file_stays(tensor: torch.Tensor, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(to_buffer(tensor))
    before = path.read_bytes()
    found = from_file(TensorSpec.of(tensor), str(path))
    assert found.stride() == tensor.stride()
    assert torch.equal(found, tensor)
    found.fill_(7)
    assert path.read_bytes() == before
    assert torch.equal(from_file(TensorSpec.of(tensor), str(path)), tensor)


class Worker:
    """Stands in for a worker: variant 1 fails in its second case, and variant 2 ends the process."""

    def __init__(self) -> None:
        self.ended = False
        self._loaded = -1
        self._seen: dict[str, Any] = {}

    def give(self, file: Path) -> str:
        assert file.stat().st_size == 16
        return file.name

    def load(self, task: Any, snapshot: Snapshot) -> None:
        self._loaded = int(snapshot.id)

    def request(self, op: str, timeout_s: float, **message: Any) -> tuple[dict[str, Any], list[bytearray]]:
        if op == "inputs":
            (arguments,) = message["sets"]
            self._seen = {one["name"]: one["value"] for one in arguments}
            return {}, []
        assert sorted(self._seen) == ["factor", "out", "x"]
        if self._loaded == 2:
            self.ended = True
            raise WorkerFailure(Status.CRASHED, "killed by SIGSEGV")
        if self._loaded == 1 and self._seen["factor"] == 2:
            raise WorkerFailure(Status.TIMEOUT, "no answer")
        call = CallProfile(launches=[profile(blocks=self._loaded + 1)])
        return {"profile": call.model_dump()}, []

    def close(self) -> None: ...


def code(fails: bool) -> Any:
    def arguments(case: dict[str, int], inputs: dict[str, Any]) -> dict[str, Any]:
        return inputs | {"factor": case["N"], "out": torch.empty(4)}

    def inputs(case: dict[str, int], seed: int) -> dict[str, Any]:
        if fails and case == CASES[1]:
            raise ValueError("no such inputs")
        return {"x": torch.ones(4)}

    task = SimpleNamespace(file=SimpleNamespace(timeout_s=1.0))
    work = Work(bytes=1, flops=0, dtype="float32")
    return SimpleNamespace(task=task, cached_inputs=inputs, arguments=arguments, work=lambda case: work)


def look(folder: Path, fails: bool = False) -> tuple[list[Surveyed], list[str]]:
    root = folder / "snapshots" / "0"
    root.mkdir(parents=True)
    snapshots = [Snapshot(id=str(n), root=root, task=PurePosixPath(), cache=folder) for n in range(4)]
    taken, turn = [0], threading.Lock()
    said: list[str] = []

    def take() -> Any:
        assert turn.acquire(blocking=False)  # by one caller at a time
        taken[0] += 1
        turn.release()
        return Worker()

    found = survey(code(fails), snapshots, [], CASES, H200, 2, take, said.append)  # type: ignore[arg-type]
    assert not list(folder.glob("inputs-*"))
    return found, said


def test_a_survey_tells_how_far_it_is_and_a_failure_costs_one_variant(tmp_path: Path) -> None:
    found, said = look(tmp_path)
    assert [one.status for one in found] == [Status.PASSED, Status.TIMEOUT, Status.CRASHED, Status.PASSED]
    assert [len(one.ms) for one in found] == [2, 0, 0, 2]
    assert [one.profiles[0].launches[0].blocks for one in (found[0], found[3])] == [1, 4]
    assert said[0].startswith("compiled and modelled 0 of 8")
    assert said[-1].startswith("compiled and modelled 8 of 8")


def test_a_survey_without_inputs_ends(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such inputs"):
        look(tmp_path, fails=True)


def test_what_could_not_be_modelled_is_raced() -> None:
    slow = unmodelled(Surveyed(status=Status.TIMEOUT, message="no answer within 30 s in a sampled call"))
    strange = unmodelled(Surveyed(status=Status.RAISED, message="UnsupportedOperation: f.py:3: no such thing"))
    wrong = Surveyed(status=Status.RAISED, message="ValueError: no")
    assert (slow.status, strange.status, unmodelled(wrong)) == (Status.PASSED, Status.PASSED, wrong)
    assert slow.message == "not modelled: no answer within 30 s in a sampled call"
    good, bad = (Surveyed(profiles=[CallProfile(launches=[])], ms=[ms], limits=["x"]) for ms in (1.0, 9.0))
    assert [*pruned([slow, strange, good, bad])] == [3]
    assert pruned([slow] * 3) == {}
    out = pruned([slow] * (MOST_RACED + 2))
    assert [*out] == [MOST_RACED, MOST_RACED + 1]
    assert out[MOST_RACED].startswith("not modelled: no answer within 30 s in a sampled call; ")
    many = pruned([slow, *[good] * 60, *[slow] * 60])
    assert ORIGINAL not in many
    assert 121 - len(many) == MOST_RACED


def test_a_sample_that_takes_too_long_is_given_up() -> None:
    host.install(spec_by_arch("sm_90"))
    a, b, out = torch.rand(64, 64), torch.rand(64, 64), torch.zeros(64, 64)

    def call() -> None:
        ct.launch(None, (4, 4), kernels.matmul, (a, b, out, 16, 16, 16))

    with host.running(host.Mode.SAMPLE, limit_s=0.0), pytest.raises(UnsupportedOperation, match="too long"):
        call()
    with host.running(host.Mode.SAMPLE, limit_s=60.0) as launches:
        call()
    assert launches[0].counts.loop_trips == 4 * SAMPLED_BLOCKS
    with host.running(host.Mode.RUN, limit_s=0.0):
        call()
    torch.testing.assert_close(out, a @ b)


def test_no_operation_of_the_interpreter_is_counted_or_passes_through_python() -> None:
    host.install(spec_by_arch("sm_90"))
    x, out = torch.rand(4096), torch.zeros(4096)
    with host.running(host.Mode.SAMPLE), counting() as ops:
        ct.launch(None, (128,), kernels.casts, (x, out, 32))
        assert not ops
        out.add_(1)
    assert [one.name for one in ops] == ["add_"]


LOOK = """
import sys, torch
from tilewright.interpreter.hostops import counting
with counting() as ops:
    (torch.ones(4, 4) + 1).view(16)
    torch.empty(3)
assert [one.name for one in ops] == ["ones", "add"], ops
print(*(name for name in ("torch._dynamo", "sympy") if name in sys.modules))
"""


def test_counting_imports_nothing_that_takes_seconds() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


class Runs:
    """Stands in for both referees of a search on a GPU: the original's model takes too long, and so does config 2's."""

    def __init__(self, refuses: bool = False) -> None:
        self._surveying, self._refuses = asyncio.Event(), refuses
        self.given_up = False
        self.raced = 0
        self.ready_for = 0

    async def ready(self, count: int) -> None:
        self.ready_for = count

    async def environment(self) -> Environment:
        await asyncio.wait_for(self._surveying.wait(), 10)  # the survey goes on meanwhile
        if self._refuses:
            raise Misuse("no GPU")
        ceilings = Ceilings(copy_bytes_per_s=1e12, flops={}, measured=True)
        known = dict.fromkeys(("torch", "cuda_tile", "compiler", "python"), "")
        return Environment(backend=Backend.CUDA, device="d", arch="sm_90", ceilings=ceilings, **known)

    async def survey(self, variants: list[Any], *_: Any) -> SurveyResult:
        self._surveying.set()
        try:
            await asyncio.sleep(30 if self._refuses else 0.1)
        except asyncio.CancelledError:
            self.given_up = True
            raise
        slow = Surveyed(status=Status.TIMEOUT, message="no answer within 30 s in a sampled call")
        known = [
            Surveyed(profiles=[CallProfile(launches=[profile()])], ms=[ms], limits=["spills"]) for ms in (1.0, 9.0)
        ]
        return SurveyResult(
            status=Status.PASSED, cases=[{"N": 1}], calls=["x"], variants=[slow, known[0], slow, known[1]]
        )

    async def race(self, variants: list[Any], *_: Any) -> RaceResult:
        self.raced = len(variants)
        configs = [[Raced(ms=1 / up, speedup=up, low=up, high=up)] for up in (1.0, 1.5, 2.0)]
        return RaceResult(status=Status.PASSED, cases=[{"N": 1}], configs=configs)

    async def correctness(self, *_: Any) -> CorrectnessResult:
        return CorrectnessResult(status=Status.PASSED)

    async def benchmark(self, *_: Any) -> BenchmarkResult:
        return BenchmarkResult(status=Status.PASSED, speedup=2.0, speedup_low=1.9, speedup_high=2.1)


def searched(runs: Runs, space: dict[str, list[Any]], folder: Path, tell: Any) -> Any:
    file = TaskFile.model_validate({"name": "t", "entry": "k:scale", "editable": ["k.py"], "cases": [{"N": 1}]})
    found = wanted_of(Task(file, folder), SCALE_KERNEL.encode())
    other: Any = SimpleNamespace(environment=runs.environment, survey=runs.survey)
    wanted = type(found)(found.found, space, None)
    return asyncio.run(search(wanted, Backend.CUDA, other, runs, tell))  # type: ignore[arg-type]


def test_a_search_races_what_it_could_not_model_the_original_too(tmp_path: Path) -> None:
    runs, said = Runs(), []  # type: ignore[var-annotated]
    result = searched(runs, {"TILE": [16, 32, 128]}, tmp_path, said.append)
    assert result.status is Status.PASSED, result.message
    assert said[0].startswith("starting")
    assert (runs.ready_for, runs.raced) == (4, 3)
    places = {one.label: (one.place, one.why) for one in result.tried}
    assert places["as it is"] == ("measured", "not modelled: no answer within 30 s in a sampled call")
    assert places["TILE=16"] == ("measured", "")
    assert places["TILE=32"] == ("best", "not modelled: no answer within 30 s in a sampled call")
    assert places["TILE=128"][0] == "pruned"
    assert "9.0 times the best" in places["TILE=128"][1]
    assert result.written  # as another config's profile shows it


def test_a_survey_is_given_up_where_nothing_can_be_measured(tmp_path: Path) -> None:
    runs = Runs(refuses=True)
    with pytest.raises(Misuse, match="no GPU"):
        searched(runs, {"TILE": [16]}, tmp_path, lambda _: None)
    assert runs.given_up


def test_a_kind_that_no_model_shows_is_asked_for(tmp_path: Path) -> None:
    from tilewright.knobs import SpaceError

    with pytest.raises(SpaceError, match="name the kernel's kind, which is unknown: not modelled: no answer"):
        searched(Runs(), {}, tmp_path, lambda _: None)
