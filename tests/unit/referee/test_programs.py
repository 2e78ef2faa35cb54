"""The programs of a candidate in each case of a task, where some cases have none."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

import pytest

from tests.unit.programs.made import OUT, copied, fill, program
from tilewright.evaluation.pool import WorkerFailure
from tilewright.evaluation.results import Status
from tilewright.evaluation.snapshot import Snapshot
from tilewright.evaluation.taskcode import TaskCode
from tilewright.programs.launches import launches_of
from tilewright.referee import candidates
from tilewright.referee.candidates import Programs
from tilewright.referee.capture_worker import EntryFailed, InProcess
from tilewright.referee.captures import Arguments, CallCaptured, OtherLaunches
from tilewright.task import Backend, TaskError, load_task
from tilewright.wire.messages import Recorded

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
    return Work(2 * case["N"], case["N"], "float32")
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
        found = [CallCaptured((ONE,), peak_bytes=7), *[CallCaptured(reason="it waits for the host")] * len(draws)]
        return found[: len(draws)]

    monkeypatch.setattr(candidates, "capture_calls", capture)
    return asked


class Process:
    """Stands for `OrdinaryCalls`: what it was asked, in turn."""

    asked: ClassVar[list[str]] = []
    answers: ClassVar[list[Any]] = []
    fails: ClassVar[Exception | None] = None

    def __init__(self, server: Any, entry: Any, draws: Sequence[Arguments], limit_s: float) -> None:
        self.made = False

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.asked.append("end")

    def make(self) -> Any:
        self.asked.append("make again" if self.made else "make")
        self.made = True
        if self.fails is not None:
            raise self.fails
        return self.answers.pop(0)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> type[Process]:
    made = type("Own", (Process,), {"asked": [], "answers": [], "fails": None})
    monkeypatch.setattr(candidates, "OrdinaryCalls", made)
    return made


def ordinary(us: float) -> Recorded:
    return Recorded(launches=launches_of(ONE), us=[us], host_us=[9.0])


def programs() -> Programs:
    return Programs(None)  # type: ignore[arg-type]


ROOM = 80 << 30
OTHER = SNAPSHOT.model_copy(update={"id": "b"})


def test_what_is_captured_beside_a_check_is_there_for_the_benchmark(code: TaskCode, captured: list[int]) -> None:
    made = programs()
    made.of(code, SNAPSHOT, [PLAIN], "incumbent")
    with made.captured_aside(code, OTHER, [PLAIN], ROOM):
        pass
    assert captured == [1, 1]
    assert made.of(code, OTHER, [PLAIN], "candidate")[0].programs == (ONE,)
    with made.captured_aside(code, OTHER, [PLAIN], ROOM):
        pass
    assert captured == [1, 1]


def test_a_first_candidate_is_captured_ahead_too(code: TaskCode, captured: list[int]) -> None:
    made = programs()
    with made.captured_aside(code, OTHER, [PLAIN], ROOM):
        pass
    assert captured == [1]
    assert made.of(code, OTHER, [PLAIN], "incumbent")[0].programs == (ONE,)
    assert captured == [1]


def test_what_is_too_large_is_not_captured_ahead(code: TaskCode, captured: list[int]) -> None:
    made = programs()
    with made.captured_aside(code, OTHER, [PLAIN], candidates.AHEAD * 8 - 1):  # of the task's own count of bytes
        pass
    assert captured == []
    made.of(code, SNAPSHOT, [PLAIN], "incumbent")
    with made.captured_aside(code, OTHER, [PLAIN], candidates.AHEAD * (16 + 7) - 1):  # 7: what the call allocated
        pass
    assert captured == [1]
    with made.captured_aside(code, OTHER, [PLAIN], candidates.AHEAD * (16 + 7)):
        pass
    assert captured == [1, 1]


def test_arguments_that_are_too_large_to_be_kept_are_not_drawn_beside_a_check(
    code: TaskCode, captured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "PUBLIC_BYTES", 31)  # both draws take 32
    made = programs()
    with made.captured_aside(code, OTHER, [PLAIN], ROOM):
        pass
    assert captured == []
    assert made.of(code, OTHER, [PLAIN], "incumbent")[0].programs == (ONE,)


def test_a_task_that_fails_is_no_candidates_fault(
    code: TaskCode, captured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def inputs(case: Any, seed: int) -> Any:
        raise TaskError("task.py: make_inputs raised")

    monkeypatch.setattr(code, "inputs", inputs)
    with pytest.raises(TaskError, match="make_inputs raised"):
        programs().of(code, SNAPSHOT, [PLAIN], "candidate")
    with pytest.raises(TaskError, match="make_inputs raised"):
        programs().of_each(code, [SNAPSHOT], [PLAIN], ROOM, lambda: None, lambda _: None)
    assert captured == []


def test_what_goes_wrong_beside_a_check_is_tried_again(code: TaskCode, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure, a call that is no program, an error: each may be the other work's doing."""
    answers: list[Any] = [
        [CallCaptured((ONE,))], EntryFailed("crashed", "out of memory"), [CallCaptured((ONE,))],
        InProcess("no room"), [CallCaptured((ONE,))], OSError("no file is to be had"), [CallCaptured((ONE,))],
    ]  # fmt: skip

    def capture(*_: Any) -> list[CallCaptured]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        found: list[CallCaptured] = answer
        return found

    monkeypatch.setattr(candidates, "capture_calls", capture)
    made = programs()
    made.of(code, SNAPSHOT, [PLAIN], "incumbent")
    for name in "bcd":
        snapshot = SNAPSHOT.model_copy(update={"id": name})
        with made.captured_aside(code, snapshot, [PLAIN], ROOM):
            pass
        assert made.of(code, snapshot, [PLAIN], "candidate") == [CallCaptured((ONE,))]
    assert answers == []


def test_work_beside_a_check_ends_soon_after_it(code: TaskCode, monkeypatch: pytest.MonkeyPatch) -> None:
    def capture(*arguments: Any) -> list[CallCaptured]:
        stop = arguments[5]
        if stop is not None:
            assert stop.wait(30)
            raise EntryFailed("timeout", "it was given up")
        return [CallCaptured((ONE,))]

    monkeypatch.setattr(candidates, "capture_calls", capture)
    monkeypatch.setattr(candidates, "GRACE_S", 0.1)
    made = programs()
    made.of(code, SNAPSHOT, [PLAIN], "incumbent")
    with made.captured_aside(code, OTHER, [PLAIN], ROOM):
        pass
    assert made.of(code, OTHER, [PLAIN], "candidate") == [CallCaptured((ONE,))]


def test_a_further_capture_beside_a_check_is_there_for_a_benchmark_that_confirms(
    code: TaskCode, captured: list[int], process: type[Process]
) -> None:
    """Once: each confirmation takes captures of its own."""
    made = programs()
    process.answers += [[ordinary(5.0)]] * 2
    with made.captured_aside(code, OTHER, [PLAIN], ROOM, again=True):
        pass
    assert captured == [], "nothing is known that this would be a further capture of"
    made.of(code, OTHER, [PLAIN], "candidate")
    with made.captured_aside(code, OTHER, [PLAIN], ROOM, again=True):
        pass
    assert captured == [1, 1]
    made.of(code, OTHER, [PLAIN], "candidate")
    assert made.anew(code, OTHER, [PLAIN], "candidate")[0].programs == (ONE,)
    assert captured == [1, 1]
    made.anew(code, OTHER, [PLAIN], "candidate")
    assert captured == [1, 1, 1]


def test_what_was_captured_further_is_of_one_candidate(
    code: TaskCode, captured: list[int], process: type[Process]
) -> None:
    made = programs()
    process.answers += [[ordinary(5.0)]]
    made.of(code, OTHER, [PLAIN], "candidate")
    with made.captured_aside(code, OTHER, [PLAIN], ROOM, again=True):
        pass
    made.anew(code, SNAPSHOT, [PLAIN], "candidate")
    assert captured == [1, 1, 1]


def test_what_tunes_is_not_captured_further_beside_a_check(code: TaskCode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other work disturbs the choice."""
    asked: list[int] = []

    def capture(*_: Any) -> list[CallCaptured]:
        asked.append(1)
        return [CallCaptured((ONE,), tuned=True)]

    monkeypatch.setattr(candidates, "capture_calls", capture)
    made = programs()
    made.of(code, OTHER, [PLAIN], "candidate")
    with made.captured_aside(code, OTHER, [PLAIN], ROOM, again=True) as stop:
        assert stop is None
    assert asked == [1]


MORE = program([copied(), fill(OUT, 20), fill(OUT, 21)])
"""It launches more than `ONE` does."""


def test_ordinary_calls_are_made_anew_each_time(code: TaskCode, process: type[Process]) -> None:
    calls = [ordinary(us) for us in (5.0, 6.0)]
    process.answers += [[one] for one in calls]
    made = programs()
    assert made.confirm(code, SNAPSHOT, [PLAIN], [[MORE, ONE]], "candidate") == [(calls[0], [ONE])]
    with pytest.raises(OtherLaunches):
        made.confirm(code, SNAPSHOT, [PLAIN], [[MORE]], "candidate")


def test_ordinary_calls_are_tried_beside_a_check_in_the_process_that_makes_them(
    code: TaskCode, captured: list[int], process: type[Process]
) -> None:
    """It ends before anything is replayed."""
    made, tried, call = programs(), ordinary(9.0), ordinary(5.0)
    process.answers += [[tried], [call], [tried]]
    made.of(code, OTHER, [PLAIN], "candidate")
    with made.captured_aside(code, OTHER, [PLAIN], ROOM, again=True):
        pass
    assert process.asked == ["make"]
    made.record(code, OTHER, [PLAIN])
    assert process.asked[1:] == ["make again", "end"]
    assert made.confirm(code, OTHER, [PLAIN], [[ONE]], "candidate") == [(call, [ONE])]
    assert len(process.asked) == 3
    assert made.confirm(code, OTHER, [PLAIN], [[ONE]], "candidate") == [(tried, [ONE])], "what was recorded counts once"
    assert process.asked[3:] == ["make", "end"]


def test_what_tried_ordinary_calls_ends_where_nobody_asks_it(
    code: TaskCode, captured: list[int], process: type[Process]
) -> None:
    made = programs()
    process.answers += [[ordinary(5.0)]] * 5
    made.of(code, OTHER, [PLAIN], "candidate")

    def beside() -> Any:
        del process.asked[:]
        return made.captured_aside(code, OTHER, [PLAIN], ROOM, again=True)

    with beside():
        pass
    made.record(code, SNAPSHOT, [PLAIN])
    assert process.asked == ["make", "end"], "it is another version's"
    with beside() as stop:
        while not process.asked:  # it is given up once it has made them
            time.sleep(0.01)
        stop.set()
    assert process.asked[-1] == "end"
    with pytest.raises(WorkerFailure), beside():
        raise WorkerFailure(Status.CRASHED, "it crashed")
    assert process.asked[-1:] in ([], ["end"])
    with beside():
        pass
    with made.captured_aside(code, SNAPSHOT, [PLAIN], ROOM):
        pass
    assert process.asked == ["make", "end"], "another check begins"


def test_ordinary_calls_that_fail_where_they_were_tried_are_made_anew(
    code: TaskCode, captured: list[int], process: type[Process]
) -> None:
    made, call = programs(), ordinary(5.0)
    made.of(code, OTHER, [PLAIN], "candidate")
    process.fails = EntryFailed("crashed", "out of memory")
    with made.captured_aside(code, OTHER, [PLAIN], ROOM, again=True):
        pass
    assert process.asked == ["make", "end"]
    assert made.anew(code, OTHER, [PLAIN], "candidate")[0].programs == (ONE,)
    assert captured == [1, 1], "what was captured counts all the same"
    process.fails, process.answers = None, [[ordinary(9.0)]]
    with made.captured_aside(code, OTHER, [PLAIN], ROOM, again=True):
        pass
    process.fails = EntryFailed("crashed", "out of memory")
    made.record(code, OTHER, [PLAIN])
    process.fails, process.answers = None, [[call]]
    assert made.confirm(code, OTHER, [PLAIN], [[ONE]], "candidate") == [(call, [ONE])]


@pytest.mark.parametrize("fails", [False, True])
def test_a_check_that_fails_gives_up_what_is_captured_beside_it(
    code: TaskCode, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    given: list[Event | None] = []

    def capture(*arguments: Any) -> list[CallCaptured]:
        stop = arguments[5]
        given.append(stop)
        if stop is not None:
            assert stop.wait(30)
        return [CallCaptured((ONE,))]

    monkeypatch.setattr(candidates, "capture_calls", capture)
    made = programs()
    made.of(code, SNAPSHOT, [PLAIN], "incumbent")
    try:
        with made.captured_aside(code, OTHER, [PLAIN], ROOM) as stop:
            if fails:
                raise WorkerFailure(Status.CRASHED, "it crashed")
            assert stop is not None
            stop.set()
    except WorkerFailure:
        assert fails
    assert len(given) == 2
    made.of(code, OTHER, [PLAIN], "candidate")
    assert len(given) == 3


@pytest.mark.parametrize("places", [[0], [1], [2], [0, 2], [0, 1]])
def test_a_case_whose_shapes_follow_the_draw_has_no_program_and_the_others_have(
    code: TaskCode, captured: list[int], places: list[int]
) -> None:
    cases = [RAGGED if number in places else PLAIN | {"part": number} for number in range(3)]
    found = programs().of(code, SNAPSHOT, cases, "candidate")
    why = "its inputs have other shapes, strides or dtypes from draw to draw"
    assert [found[number] for number in places] == [CallCaptured(reason=why)] * len(places)
    others = [found[number] for number in range(3) if number not in places]
    assert others == [CallCaptured((ONE,), peak_bytes=7), CallCaptured(reason="it waits for the host")][: len(others)]
    assert captured == [3 - len(places)]


def test_without_a_case_that_can_be_no_worker_is_started(code: TaskCode, captured: list[int]) -> None:
    found = programs().of(code, SNAPSHOT, [RAGGED, RAGGED | {"part": 1}], "candidate")
    assert [one.programs for one in found] == [(), ()]
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
        (InProcess("CUPTI cannot be loaded"), None),
    ],
)
def test_an_ordinary_call_s_failures_are_of_the_arm_that_it_is_of(
    code: TaskCode, process: type[Process], error: Exception, status: Status | None
) -> None:
    """That what it launches cannot be recorded is no failure."""
    process.fails = error
    with pytest.raises(WorkerFailure if status else type(error)) as failed:
        programs().confirm(code, SNAPSHOT, [PLAIN, {"N": 8}], [[ONE], [ONE]], "incumbent")
    assert process.asked == ["make", "end"]
    if status:
        assert isinstance(failed.value, WorkerFailure)
        assert (failed.value.status, failed.value.label, str(failed.value)) == (status, "incumbent", str(error))
