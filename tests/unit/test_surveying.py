"""The survey of variants: inputs that workers map, what a failure costs, what a look imports."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import cuda.tile as ct
import pytest
import torch

from tests.unit import kernels
from tests.unit.test_corpus import _stand_in  # noqa: F401 (the fixture)
from tests.unit.test_model import H200, profile
from tilewright.evaluation.estimation import described
from tilewright.evaluation.pool import WorkerFailure
from tilewright.evaluation.results import (
    Status,
    Surveyed,
)
from tilewright.evaluation.snapshot import Snapshot
from tilewright.evaluation.surveying import Variant, _Hand, survey
from tilewright.evaluation.tensors import TensorSpec, from_file, to_buffer
from tilewright.gpu.specs import spec_by_arch
from tilewright.interpreter import host
from tilewright.interpreter.hostops import counting
from tilewright.roofline.model import CallProfile, estimate_call
from tilewright.task import Frontend, Work

CASES = [{"N": 1}, {"N": 2}]
READ = {"resources": profile().resources.model_dump()}


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
    """Stands in for a worker: variant 1 fails in its second case, and variant 2 ends the process. Variant n launches
    n + 1 blocks."""

    def __init__(self) -> None:
        self.ended = False
        self._loaded = -1
        self._seen: dict[str, Any] = {}

    def give(self, file: Path) -> str:
        assert file.stat().st_size == 16
        return file.name

    def load(self, task: Any, snapshot: Snapshot) -> None:
        self._loaded = int(snapshot.id)

    def request(
        self, op: str, timeout_s: float, buffers: Any = (), **message: Any
    ) -> tuple[dict[str, Any], list[bytearray]]:
        if op == "inputs":
            (arguments,) = message["sets"]
            self._seen = {one["name"]: one["value"] for one in arguments}
            return {}, []
        assert op == "profile"
        assert sorted(self._seen) == ["factor", "out", "x"]
        if self._loaded == 2:
            self.ended = True
            raise WorkerFailure(Status.CRASHED, "killed by SIGSEGV")
        if self._loaded == 1 and self._seen["factor"] == 2:
            raise WorkerFailure(Status.TIMEOUT, "no answer")
        return {"profile": CallProfile(launches=[profile(blocks=self._loaded + 1)]).model_dump()}, []

    def close(self) -> None: ...


def code(fails: bool = False) -> Any:
    def arguments(case: dict[str, int], inputs: dict[str, Any]) -> dict[str, Any]:
        return inputs | {"factor": case["N"], "out": torch.empty(4)}

    def inputs(case: dict[str, int], seed: int) -> dict[str, Any]:
        if fails and case == CASES[1]:
            raise ValueError("no such inputs")
        return {"x": torch.ones(4)}

    task = SimpleNamespace(file=SimpleNamespace(timeout_s=1.0), written_in=lambda frontend: frontend)
    work = Work(bytes=1, flops=0, dtype="float32")
    return SimpleNamespace(task=task, cached_inputs=inputs, arguments=arguments, work=lambda case: work)


def look(folder: Path, count: int = 4, fails: bool = False, take: Any = None) -> tuple[list[Surveyed], list[str]]:
    root = folder / "snapshots" / "0"
    root.mkdir(parents=True)
    turn = threading.Lock()
    said: list[str] = []

    def taken() -> Any:
        assert turn.acquire(blocking=False)  # by one caller at a time
        turn.release()
        return Worker()

    variants = [
        Variant(Snapshot(id=str(number), root=root, task=PurePosixPath(), cache=folder), Frontend.CUTILE)
        for number in range(count)
    ]
    found = survey(code(fails), variants, CASES, H200, 2, take or taken, said.append)
    assert not list(folder.glob("inputs-*"))
    return found, said


def test_a_survey_tells_how_far_it_is_and_a_failure_costs_one_variant(tmp_path: Path) -> None:
    found, said = look(tmp_path)
    assert [one.status for one in found] == [Status.PASSED, Status.TIMEOUT, Status.CRASHED, Status.PASSED]
    assert [len(one.ms) for one in found] == [2, 0, 0, 2]
    assert [one.profiles[0].launches[0].blocks for one in (found[0], found[3])] == [1, 4]
    assert said == [f"compiled and modelled {count} of 4 configs" for count in (1, 2, 3, 4)]


def test_a_thread_goes_on_with_a_new_worker_where_its_own_has_ended() -> None:
    taken: list[Worker] = []

    def take() -> Any:
        taken.append(Worker())
        return taken[-1]

    hand = _Hand(take, threading.Lock())
    assert hand.worker() is hand.worker()
    taken[0].ended = True
    assert hand.worker() is taken[1]
    hand.close()
    assert (hand.worker(), len(taken)) == (taken[2], 3)


def test_what_cannot_be_a_launch_is_a_failure_of_its_process() -> None:
    for strange in ({"blocks": 10**400}, {"blocks": -1}, {"bytes_loaded": "x"}, {"resources": {}}):
        with pytest.raises(WorkerFailure, match="described its launches wrongly"), described():
            CallProfile.model_validate({"launches": [profile().model_dump() | strange]})
    with pytest.raises(WorkerFailure, match="described its launches wrongly"), described():
        estimate_call(CallProfile(launches=[profile(cluster_ctas=0)]), H200)


def test_where_no_worker_can_be_had_nothing_is_modelled_and_the_survey_ends(tmp_path: Path) -> None:
    def take() -> Any:
        raise WorkerFailure(Status.VOID, "no memory")

    found, _ = look(tmp_path, 3, take=take)
    assert [(one.status, one.message) for one in found] == [(Status.VOID, "no memory")] * 3


def test_a_survey_without_inputs_ends(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such inputs"):
        look(tmp_path, fails=True)


def test_no_operation_of_the_interpreter_is_counted_or_passes_through_python() -> None:
    host.install(spec_by_arch("sm_90"))
    x, out = torch.rand(4096), torch.zeros(4096)
    with host.running(host.Mode.SAMPLE), counting() as ops:
        ct.launch(0, (128,), kernels.casts, (x, out, 32))
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
