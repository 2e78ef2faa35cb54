"""The two kinds of workers: what each one does with a call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.unit.programs.made import OUT, copied, cubin, fill, program
from tilewright.evaluation.candidate import GIVEN_PATH, CandidateFailure
from tilewright.gpu.cupti import Activity, NotRecorded
from tilewright.programs.model import Program
from tilewright.wire.channel import ChannelError
from tilewright.wire.launches import CopyLaunch
from tilewright.wire.messages import (
    CallArgument,
    Captured,
    Done,
    LoadEntry,
    MakeCall,
    Recorded,
    SetArguments,
)
from tilewright.worker import process
from tilewright.worker.capture import WARM_CALLS
from tilewright.worker.nodes import NotCapturable
from tilewright.worker.process import HOST_CALLS, TIMED_CALLS, CapturingWorker, OrdinaryWorker

ONE = program([copied(), fill(OUT, 20)])
ENTRY = """
import torch

calls = []

def entry(size):
    calls.append(size)
    if size < 0:
        raise ValueError("no such size")
    return torch.zeros(size)
"""


class Recorder:
    """Stands for CUPTI's records: says that each call copies as many bytes as calls came before it, in two copies that
    take 3 us and 4.5 us."""

    def record(self, call: Callable[[], object]) -> list[Activity]:
        import calls_of_a_worker

        before = len(calls_of_a_worker.calls)
        call()
        return [Activity(CopyLaunch(size=before), 1, 0, at, end) for at, end in ((1000, 4000), (9000, 13_500))]


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadEntry:
    (tmp_path / "calls_of_a_worker.py").write_text(ENTRY)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.delitem(__import__("sys").modules, "calls_of_a_worker", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    return LoadEntry(
        folder=str(tmp_path),
        import_paths=[],
        module="calls_of_a_worker",
        function="entry",
        outputs=[],
        frontend="torch",
    )


def arguments(size: int) -> SetArguments:
    return SetArguments(zone=1, arguments=[CallArgument(name="size", value=size)])


def test_an_ordinary_call_is_recorded_once_it_is_warm(entry: LoadEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    """And timed from a cold cache, and on the host."""
    flushed: list[int] = []

    def flush() -> None:
        import calls_of_a_worker

        flushed.append(len(calls_of_a_worker.calls))

    monkeypatch.setattr(process, "Flush", lambda: flush)
    recorder: Any = Recorder()
    worker = OrdinaryWorker(recorder)
    assert worker.answer(entry, []) == (Done(), [])
    assert worker.answer(arguments(3), []) == (Done(), [])
    answer, buffers = worker.answer(MakeCall(), [])
    assert isinstance(answer, Recorded) and buffers == []
    assert answer.launches == [CopyLaunch(size=WARM_CALLS)] * 2
    assert set(answer.us) == {7.5}
    assert flushed == [*range(flushed[0], flushed[0] + len(answer.us))], "once before each timed call"
    assert flushed[0] > WARM_CALLS + 1
    assert len(answer.us) <= TIMED_CALLS
    assert len(answer.host_us) <= HOST_CALLS
    assert min(answer.host_us) > 0
    worker.answer(arguments(-1), [])
    with pytest.raises(CandidateFailure, match="no such size"):
        worker.answer(MakeCall(), [])


def test_an_entry_point_with_a_root_lies_where_those_that_check_see_it(entry: LoadEntry, tmp_path: Path) -> None:
    """Compilers write the path of a source into what they make, and find it by that."""
    worker = OrdinaryWorker(NotRecorded(""))
    worker.answer(entry.model_copy(update={"root": str(tmp_path)}), [])
    import calls_of_a_worker

    assert calls_of_a_worker.__file__ == f"{GIVEN_PATH}/{tmp_path.name}/calls_of_a_worker.py"


def test_without_cupti_nothing_is_called(entry: LoadEntry) -> None:
    worker = OrdinaryWorker(NotRecorded("CUPTI cannot be loaded"))
    worker.answer(entry, [])
    with pytest.raises(NotRecorded, match="CUPTI cannot be loaded"):
        worker.answer(MakeCall(), [])


def test_a_worker_that_makes_ordinary_calls_loads_one_entry_point(entry: LoadEntry) -> None:
    recorder: Any = Recorder()
    ordinary = OrdinaryWorker(recorder)
    ordinary.answer(entry, [])
    with pytest.raises(ChannelError, match="loads one entry point"):
        ordinary.answer(entry, [])


def test_a_worker_that_captures_takes_another_entry_point_once_no_memory_is_in_use(
    entry: LoadEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "calls_of_a_worker.py").write_text("def entry(size): ...\n")
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None, raising=False)
    arena: Any = SimpleNamespace(free=True, reset=lambda: arena.free)
    worker = CapturingWorker(arena, "sm_90")
    worker._watch = lambda: None  # type: ignore[method-assign]
    worker.answer(entry, [])
    worker._arguments = {"size": 3}
    assert worker.answer(entry.model_copy(update={"folder": str(other)}), []) == (Done(), [])
    assert worker._arguments == {}
    assert sys.modules["calls_of_a_worker"].__file__ == str(other / "calls_of_a_worker.py")
    arena.free = False
    with pytest.raises(NotCapturable, match="still in use"):
        worker.answer(entry, [])


@pytest.mark.parametrize(
    ("loaded", "spare"), [([cubin()], 0), ([cubin(), cubin(), b"first try", b"second try"], 2), ([], 0)]
)
def test_images_that_a_call_loads_beside_those_of_its_program_are_counted(
    entry: LoadEntry, monkeypatch: pytest.MonkeyPatch, loaded: list[bytes], spare: int
) -> None:
    """A tuner's, which may do so when it is imported. What was counted before does not count again; an image that is
    loaded twice is one. What another capture of the call launched is none of the program's."""
    kept: list[bytes] = []
    source = SimpleNamespace(images=lambda: [*kept], of=[b"first try", cubin()].__getitem__, own=lambda: {"own"})
    arena: Any = SimpleNamespace(reset_peak=lambda: None, alive_bytes=0, peak_bytes=5)

    def captured(call: Any, inputs: Any, arena: Any, images: Any, arch: str) -> Program:
        kept.extend(loaded)
        images.of([0], "sgemm")  # in a capture after which the call had to be captured again
        images.of([1], "fill")
        return ONE

    monkeypatch.setattr(process, "capture", captured)
    worker = CapturingWorker(arena, "sm_90")
    monkeypatch.setattr(worker, "_watch", lambda: worker._sources.append(source))  # type: ignore[arg-type]
    worker.answer(entry, [])
    for expected in (spare, 0):
        answer, _ = worker.answer(MakeCall(), [])
        assert answer == Captured(program=0, peak_bytes=5, spare_images=expected, libraries=["fill"])
