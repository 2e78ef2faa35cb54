"""What is timed in its own process, without a GPU: the workers and the clock are the test's."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tilewright.evaluation import measurement
from tilewright.evaluation.candidate import timed
from tilewright.evaluation.measurement import TIME_LIMIT_S, Bench, Phases, _Turns
from tilewright.evaluation.pool import WorkerFailure
from tilewright.evaluation.results import Status
from tilewright.evaluation.seeds import Seeds
from tilewright.evaluation.statistics import PAIR_LOOKS, Interval
from tilewright.evaluation.taskcode import TaskCode
from tilewright.roofline.bounds import Ceilings
from tilewright.rules import DEFAULT
from tilewright.task import Backend, load_task

TOML = """
name = "scale"
entry = "kernel:run"
editable = ["kernel.py"]
frontend = "torch"

[[cases]]
N = 8
"""
CODE = """
import torch
from tilewright.task import Work

def make_inputs(case, generator):
    return {"x": torch.randn(case["N"], generator=generator, device=generator.device), "n": 2}

def reference(x, n):
    return x * n

def work(case):
    return Work(8 * case["N"], case["N"], "float32")
"""


def task_code(folder: Path) -> TaskCode:
    for name, text in {"task.toml": TOML, "task.py": CODE, "kernel.py": "def run(x, n): ...\n"}.items():
        (folder / name).write_text(text)
    return TaskCode(load_task(folder), Backend.CPU)


class Timeless(Bench):
    """Two arms that are alike within a percent, whose every pair takes `pair_s` of a clock that only they move."""

    def __init__(self, pair_s: float, monkeypatch: pytest.MonkeyPatch, cases: int = 1) -> None:
        self._arms, self._clock, self._order = [None, None], Phases(), random.Random(1)  # type: ignore[list-item]
        self._rules = DEFAULT
        self._code: Any = SimpleNamespace(task=SimpleNamespace(benchmark_cases=lambda _: [{}] * cases))
        self._recorder: Any = SimpleNamespace(sample=lambda: None, busy_strangers=lambda: None)
        self._pair_s, self._now = pair_s, 100.0
        self.checked = [0, 0]
        monkeypatch.setattr(measurement, "time", SimpleNamespace(monotonic=lambda: self._now))

    def _turn(self, turns: Any, index: int, calls: int, checked: bool) -> float:
        self._now += self._pair_s / 2
        self.checked[index] += checked
        return self._order.gauss(1.0, 0.01)

    def taken(self) -> int:
        """Pairs until the end."""
        return len(self._pairs(None, 1, PAIR_LOOKS, TIME_LIMIT_S)[1])  # type: ignore[arg-type]


@pytest.mark.parametrize(("pair_s", "pairs"), [(0.01, PAIR_LOOKS[-1]), (0.1, 81), (0.5, 17), (30.0, PAIR_LOOKS[0])])
def test_pairs_end_at_the_time_limit_but_not_before_the_first_look(
    pair_s: float, pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Timeless(pair_s, monkeypatch)
    assert bench.taken() == pairs
    assert bench.checked[1] == 0
    assert 0 < bench.checked[0] < pairs


def test_pairs_go_on_until_it_is_known_whether_one_case_of_several_is_a_regression(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    perhaps = Interval(-0.010, -0.016, -0.004, 0.001, 8, 7)
    surely, hardly = replace(perhaps, high=-0.006), replace(perhaps, mean=-0.002, low=-0.004, high=-0.0001)
    for cases, decided in ((1, [True, True, True]), (2, [False, True, True])):
        bench = Timeless(0.1, monkeypatch, cases)
        assert [bench._is_decided(found) for found in (perhaps, surely, hardly)] == decided


class Arm:
    """Stands for a worker that scales its input, as long as a test has it do so."""

    def __init__(self, ms: Any, wrong: bool = False) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self._ms, self._wrong = ms, wrong

    def request(self, op: str, timeout_s: float, **message: Any) -> tuple[dict[str, Any], list[Any]]:
        self.asked.append((op, message))
        if op == "time":
            boxes, inputs = message["boxes"], dict(self.asked[-2][1]["sets"][0])
            boxes[0].copy_(inputs["x"] * (3.0 if self._wrong else 2.0))
            return {"ms": self._ms(message["calls"])}, []
        return {}, []


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A case's turns, with memory that is shared as it is."""

    class Shared:
        def __init__(self, contract: list[torch.Tensor]) -> None:
            self.described = [torch.full_like(like, math.nan) for like in contract]

        def tensors(self) -> list[torch.Tensor]:
            return self.described

    def share(arguments: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        return arguments, [SimpleNamespace(model_dump=lambda pair=pair: pair) for pair in arguments.items()]

    monkeypatch.setattr(measurement, "Boxes", Shared)
    monkeypatch.setattr(measurement, "share_inputs", share)
    return _Turns(task_code(tmp_path), {"N": 8}, Seeds("secret"))


def bench_of(turns: Any, *arms: Any) -> Bench:
    environment: Any = SimpleNamespace(device="none", ceilings=Ceilings(copy_bytes_per_s=1e12, flops={}, measured=True))
    recorder: Any = SimpleNamespace(sample=lambda: None, busy_strangers=lambda: None)
    return Bench(turns._code, [*arms], environment, recorder, Phases())


def test_a_case_is_timed_in_turns_on_new_values_and_judged(turns: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement, "_Turns", lambda *_: turns)
    fast, slow = Arm(lambda calls: [1.0] * calls), Arm(lambda calls: [2.0] * calls)
    timing, gain = bench_of(turns, fast, slow).case({"N": 8}, Seeds("x"), (8,), 60.0)
    assert (timing.latency_ms, timing.incumbent_ms, timing.speedup) == (1.0, 2.0, pytest.approx(2.0))
    assert timing.note.startswith("5 calls a turn")
    assert gain is not None
    assert (timing.pairs, gain.samples) == (8, 8)
    given = [message["sets"][0] for op, message in fast.asked if op == "inputs" and message["sets"]]
    values = [dict(one)["x"] for one in given]
    assert len(values) == 10, "the first, eight pairs, and one that is judged"
    assert not any(torch.equal(one, other) for one, other in pairwise(values))
    assert {message["calls"] for op, message in slow.asked if op == "time"} == {3, 5}


def test_wrong_outputs_and_impossible_times_are_refused(turns: Any) -> None:
    bench = bench_of(turns)
    for arm, status in (
        (Arm(lambda calls: [1.0] * calls, wrong=True), Status.WRONG_VALUES),
        (Arm(lambda calls: [1.0] * (calls - 1)), Status.VOID),
        (Arm(lambda calls: [math.inf] * calls), Status.VOID),
        (Arm(lambda calls: [True] * calls), Status.VOID),
        (Arm(lambda calls: 1.0), Status.VOID),
    ):
        bench._arms = [arm]  # type: ignore[list-item]
        with pytest.raises(WorkerFailure) as failed:
            bench._turn(turns, 0, 3, checked=True)
        assert failed.value.status is status


class Candidate:
    """A function that adds one to its argument, in place."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def __call__(self, arguments: dict[str, Any]) -> list[torch.Tensor]:
        self.seen.append(float(arguments["x"][0]))
        return [arguments["x"].add_(1)]

    def wait(self) -> None: ...


def test_what_a_call_writes_to_is_put_back_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None: ...

        def elapsed_time(self, other: Event) -> float:
            return 0.5

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(L2_cache_size=1024))
    real = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *shape, device, **more: real(*shape, **more))
    candidate: Any = Candidate()
    ms, (output,) = timed(candidate, {"x": torch.zeros(4, device="cpu")}, 3, ["x"])
    assert (ms, candidate.seen) == ([0.5] * 3, [0.0] * 4)
    assert output.tolist() == [1.0] * 4


def test_a_part_within_a_part_counts_as_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("tilewright.evaluation.measurement.time.monotonic", lambda: now[0])
    phases = Phases()
    for _ in range(2):
        with phases("outer"):
            now[0] += 1
            with phases("inner"):
                now[0] += 10
                with phases("inmost"):
                    now[0] += 100
            now[0] += 1000
    assert phases.seconds == {"outer": 2002.0, "inner": 20.0, "inmost": 200.0}
