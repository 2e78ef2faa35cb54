"""The survey of variants: inputs that workers map, what is not compiled, what a failure costs, what a look imports."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, ClassVar

import cuda.tile as ct
import pytest
import torch

from tests.unit import kernels
from tests.unit.test_corpus import _stand_in  # noqa: F401 (the fixture)
from tests.unit.test_model import H200, profile
from tilewright.autotune.pruning import unmodelled
from tilewright.evaluation.candidate import CandidateFailure
from tilewright.evaluation.estimation import described
from tilewright.evaluation.modelling import sample_call, sample_launch
from tilewright.evaluation.pool import WorkerFailure
from tilewright.evaluation.results import (
    Status,
    Surveyed,
)
from tilewright.evaluation.snapshot import Snapshot
from tilewright.evaluation.surveying import Variant, _Bar, _Drawn, _Hand, _Survey, survey
from tilewright.evaluation.tensors import TensorSpec, from_file, to_buffer
from tilewright.gpu.specs import spec_by_arch
from tilewright.interpreter import host
from tilewright.interpreter.hostops import counting
from tilewright.interpreter.numerics import UnsupportedOperation
from tilewright.interpreter.sampling import SAMPLED_BLOCKS
from tilewright.roofline.model import CallProfile, CallSample, LaunchSample, estimate_call
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
    n + 1 blocks, unless `blocks` says otherwise, and `done` holds what was asked of all of them."""

    blocks: ClassVar[dict[int, int]] = {}
    done: ClassVar[list[tuple[str, int]]] = []

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
        if op == "read":
            assert len(set(buffers)) == len(buffers)
            names = [bytes(cubin).decode() for cubin in buffers]
            if "9" in names:
                self.ended = True
                raise WorkerFailure(Status.CRASHED, "killed by SIGSEGV")
            strange = {"resources": READ["resources"] | {"registers": "many"}}
            return {"found": [{"8": {"error": "no"}, "10": strange}.get(name, READ) for name in names]}, []
        if op == "inputs":
            (arguments,) = message["sets"]
            self._seen = {one["name"]: one["value"] for one in arguments}
            return {}, []
        self.done.append((op if message.get("limit_s", 1) else "look", self._loaded))
        if op == "cubins":
            return {"keys": ["key"] * len(CASES)}, [bytearray(str(self._loaded).encode())] * len(CASES)
        assert sorted(self._seen) == ["factor", "out", "x"]
        if self._loaded == 2:
            self.ended = True
            raise WorkerFailure(Status.CRASHED, "killed by SIGSEGV")
        if self._loaded == 1 and self._seen["factor"] == 2:
            raise WorkerFailure(Status.TIMEOUT, "no answer")
        launch = profile(blocks=self.blocks.get(self._loaded, self._loaded + 1)).model_dump(exclude={"resources"})
        return {"sample": CallSample(launches=[LaunchSample.model_validate(launch)]).model_dump()}, []

    def close(self) -> None: ...


def code(fails: bool) -> Any:
    def arguments(case: dict[str, int], inputs: dict[str, Any]) -> dict[str, Any]:
        return inputs | {"factor": case["N"], "out": torch.empty(4)}

    def inputs(case: dict[str, int], seed: int) -> dict[str, Any]:
        if fails and case == CASES[1]:
            raise ValueError("no such inputs")
        return {"x": torch.ones(4)}

    task = SimpleNamespace(file=SimpleNamespace(timeout_s=1.0), written_in=lambda frontend: frontend)
    work = Work(bytes=1, flops=0, dtype="float32")
    return SimpleNamespace(task=task, cached_inputs=inputs, arguments=arguments, work=lambda case: work)


def variants(folder: Path, alike: Sequence[int]) -> list[Variant]:
    root = folder / "snapshots" / "0"
    root.mkdir(parents=True)
    Worker.done.clear()
    caches = [folder / "cache" / str(number) for number in range(len(alike))]
    for cache in caches:
        cache.mkdir(parents=True)
    return [
        Variant(Snapshot(id=str(number), root=root, task=PurePosixPath(), cache=cache), like, Frontend.CUTILE)
        for number, (like, cache) in enumerate(zip(alike, caches, strict=True))
    ]


def look(folder: Path, fails: bool = False, alike: Sequence[int] = range(4)) -> tuple[list[Surveyed], list[str]]:
    turn = threading.Lock()
    said: list[str] = []

    def take() -> Any:
        assert turn.acquire(blocking=False)  # by one caller at a time
        turn.release()
        return Worker()

    found = survey(code(fails), variants(folder, alike), CASES, H200, math.inf, 2, take, said.append)
    assert not list(folder.glob("inputs-*"))
    return found, said


def test_a_survey_tells_how_far_it_is_and_a_failure_costs_one_variant(tmp_path: Path) -> None:
    found, said = look(tmp_path)
    assert [one.status for one in found] == [Status.PASSED, Status.TIMEOUT, Status.CRASHED, Status.PASSED]
    assert [len(one.ms) for one in found] == [2, 0, 0, 2]
    assert [one.profiles[0].launches[0].blocks for one in (found[0], found[3])] == [1, 4]
    assert said[0].startswith("compiled and modelled 0 of 4")
    assert said[-1].startswith("compiled and modelled 4 of 4")


def test_machine_code_that_cannot_be_read_costs_one_variant_which_is_raced(tmp_path: Path) -> None:
    found, said = look(tmp_path, alike=range(12))
    bad = {1: Status.TIMEOUT, 2: Status.CRASHED, 8: Status.CRASHED, 9: Status.CRASHED, 10: Status.CRASHED}
    assert [one.status for one in found] == [bad.get(number, Status.PASSED) for number in range(12)]
    assert found[8].message == "its machine code was not read: no"
    assert found[9].message == "its machine code was not read: killed by SIGSEGV"
    assert said[-1].startswith("compiled and modelled 12 of 12")
    raced = unmodelled(found[9])
    assert (raced.status, raced.message) == (Status.PASSED, f"not modelled: {found[9].message}")
    assert unmodelled(found[2]).status is Status.CRASHED


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
    for strange in ({"blocks": 10**400}, {"blocks": -1}, {"bytes_loaded": "x"}, {"warps": 0}):
        launch = profile().model_dump(exclude={"resources"}) | strange
        with pytest.raises(WorkerFailure, match="described its launches wrongly"), described():
            CallSample.model_validate({"launches": [launch]})
    with pytest.raises(WorkerFailure, match="described its launches wrongly"), described():
        estimate_call(CallProfile(launches=[profile(cluster_ctas=0)]), H200)


def test_a_look_at_what_is_launched_hides_no_failure() -> None:
    host.install(spec_by_arch("sm_90"))
    x = torch.rand(4096)

    def fails(arguments: dict[str, Any]) -> list[torch.Tensor]:
        ct.launch(0, (128,), kernels.casts, (x, torch.zeros(4096), 32))
        raise CandidateFailure(Status.RAISED, "after its launch")

    for limit_s in (0.0, 60.0):
        with pytest.raises(CandidateFailure, match="after its launch"):
            sample_call(fails, {}, "sm_90", 0, Frontend.CUTILE, limit_s)  # type: ignore[arg-type]


def test_where_no_worker_can_be_had_nothing_is_modelled_and_the_survey_ends(tmp_path: Path) -> None:
    def take() -> Any:
        raise WorkerFailure(Status.VOID, "no memory")

    found = survey(code(False), variants(tmp_path, [0, 0, 2]), CASES, H200, 2.5, 2, take, lambda _: None)
    assert [(one.status, one.message) for one in found] == [(Status.VOID, "no memory")] * 3


def test_a_call_that_is_said_to_do_nothing_sets_no_bar(tmp_path: Path) -> None:
    bar = _Bar(2.5, H200)
    nothing = CallSample(launches=[])
    bar.lower(Surveyed(ms=[0.0, 1.0]))
    assert bar.slow([nothing]) == ""
    bar.lower(Surveyed(ms=[1e-9]))
    assert bar.slow([nothing]) == ""
    assert bar.slow([CallSample(launches=[profile()])])


def test_of_variants_that_differ_in_hints_one_is_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker, "blocks", {3: 64, 4: 64, 5: 64, 6: 65, 7: 3})
    found, _ = look(tmp_path, alike=[0, 1, 2, 3, 3, 3, 3, 2])
    assert [one.profiles[0].launches[0].blocks for one in (found[3], found[4], found[6])] == [64, 64, 65]
    assert Worker.done.count(("sample", 3)) == len(CASES)
    assert ("sample", 4) not in Worker.done
    assert Worker.done.count(("look", 4)) == len(CASES)
    assert Worker.done.count(("sample", 6)) == len(CASES)  # it launches something else after all
    assert ("look", 7) not in Worker.done  # the first of its kind failed, and so shows nothing
    assert found[7].status is Status.PASSED


def test_those_that_take_long_to_compile_come_before_others_like_them(tmp_path: Path) -> None:
    alike = [0, 1, 2, 0, 1, 2, 2, 1]
    seen = _Survey(code(False), variants(tmp_path, alike), CASES, H200, 2.5, lambda _: None)
    firsts = [seen.next() for _ in range(3)]
    assert firsts[0] == 0
    assert sorted(firsts) == [0, 1, 2]  # type: ignore[type-var]
    seen._compiled_s |= {0: 0.5, 2: 3.0}
    assert [alike[seen.next() or 0] for _ in range(3)] == [2, 2, 0]
    seen._compiled_s[1] = 1.0
    assert [alike[seen.next() or 0] for _ in range(2)] == [1, 1]
    assert seen.next() is None


def test_a_variant_that_is_sure_to_be_slow_is_not_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker, "blocks", {0: 10**6, 3: 10**4, 4: 10**6, 5: 10**6})
    seen = _Survey(code(False), variants(tmp_path, [0, 1, 2, 3, 4, 4]), CASES, H200, 2.5, lambda _: None)
    for case, inputs in zip(CASES, seen.drawn, strict=True):
        inputs.set_result(_Drawn(code(False), case, tmp_path))
    for numbers in ((0, 3), (4, 5)):
        for number in numbers:
            seen.look(number, Worker)  # type: ignore[arg-type]
        seen.made.put(None)
        seen.read(_Hand(Worker, threading.Lock()))  # type: ignore[arg-type]
    assert [bool(one.ms) for one in seen.found] == [True, False, False, True, False, False]
    assert seen.found[0].ms[0] > 2.5 * seen.found[3].ms[0]  # the original is compiled, however slow
    assert all(re.match(r"modelled at \d+\.\d times the best at least", seen.found[n].left) for n in (4, 5))
    assert ("cubins", 4) not in Worker.done
    assert 5 not in [number for _, number in Worker.done]  # not even loaded: the first of its kind says it all


def test_a_product_that_cannot_lie_in_registers_is_not_compiled() -> None:
    def left(arch: str, **facts: Any) -> str:
        launch = profile().model_copy(update={"product_bytes": 128 * 256 * 4, "warps": 4} | facts)
        return _Bar(2.5, spec_by_arch(arch)).spilling([CallSample(launches=[launch])])

    assert left("sm_90") == "a matmul's result alone takes 256 registers a thread, and spills: not compiled"
    assert left("sm_80")
    assert not left("sm_100")  # whose products lie in tensor memory
    assert not left("sm_90", warps=8)
    assert not left("sm_90", ctas=2)
    assert not left("sm_90", warps=None)
    assert not left("sm_90", product_bytes=128 * 128 * 4)


def test_a_sample_says_how_large_a_products_result_is_and_what_its_hints_are() -> None:
    host.install(spec_by_arch("sm_90"))
    a, b, out = torch.rand(64, 64), torch.rand(64, 64), torch.zeros(64, 64)
    hinted = kernels.matmul.replace_hints(num_worker_warps=8, num_ctas=2)
    with host.running(host.Mode.CAPTURE) as none, host.running(host.Mode.SAMPLE) as launches:
        ct.launch(0, (2, 4), hinted, (a, b, out, 32, 16, 16))
    assert not none
    found = sample_launch(launches[0], "sm_90")
    assert (found.product_bytes, found.warps, found.ctas) == (32 * 16 * 4, 8, 2)
    plain = profile().model_dump(exclude={"resources"})
    assert (LaunchSample.model_validate(plain).warps, LaunchSample.model_validate(plain).ctas) == (None, 1)


def test_a_survey_without_inputs_ends(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such inputs"):
        look(tmp_path, fails=True)


def test_a_sample_that_takes_too_long_is_given_up() -> None:
    host.install(spec_by_arch("sm_90"))
    a, b, out = torch.rand(64, 64), torch.rand(64, 64), torch.zeros(64, 64)

    def call() -> None:
        ct.launch(0, (4, 4), kernels.matmul, (a, b, out, 16, 16, 16))

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
