"""Who else uses the GPU, and how it is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.gpu.telemetry import RECENT_US, Recorder, named


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()


def strangers(monkeypatch: pytest.MonkeyPatch, running: list[int], used: dict[int, int] | None) -> set[int]:
    """Those that a recorder sees of processes on the GPU. `used`: when each used it last, in microseconds."""
    recorder = Recorder("GPU-1", {os.getpid()})

    def read(query: str, *_: int) -> Any:
        if query == "nvmlDeviceGetComputeRunningProcesses":
            return [SimpleNamespace(pid=pid) for pid in running]
        return used and [SimpleNamespace(pid=pid, smUtil=7, timeStamp=at) for pid, at in used.items()]

    monkeypatch.setattr(recorder, "_read", read)
    return recorder.busy_strangers()


def test_a_process_that_used_the_gpu_is_a_stranger(
    monkeypatch: pytest.MonkeyPatch, other: subprocess.Popen[bytes]
) -> None:
    own, now = os.getpid(), 10 * RECENT_US
    assert strangers(monkeypatch, [own, other.pid], {own: now, other.pid: now - 1}) == {other.pid}
    assert strangers(monkeypatch, [own, other.pid], {own: now, other.pid: now - RECENT_US}) == set()
    assert strangers(monkeypatch, [own, other.pid], None) == {other.pid}
    assert strangers(monkeypatch, [other.pid], {other.pid: now}) == set(), "numbers from outside a container"


def test_a_process_that_has_ended_is_none(monkeypatch: pytest.MonkeyPatch, other: subprocess.Popen[bytes]) -> None:
    """The driver lists it for a while."""
    own, now = os.getpid(), 10 * RECENT_US
    other.kill()
    other.wait()
    for used in ({own: now, other.pid: now}, None):
        assert strangers(monkeypatch, [own, other.pid], used) == set()


def test_strangers_are_named(other: subprocess.Popen[bytes]) -> None:
    """No process has a number as high as the second one."""
    found = named({(1 << 22) + 1, other.pid})
    assert re.fullmatch(rf"{other.pid} \(python[\d.]*\), {(1 << 22) + 1} \(gone\)", found)


HEALTHY = {
    "nvmlDeviceGetCurrentClocksThrottleReasons": [0x1, 0x4, None, 0x2],
    "nvmlDeviceGetTotalEccErrors": [0],
}


def watched(monkeypatch: pytest.MonkeyPatch, answers: dict[str, list[int | None]]) -> list[str]:
    """What a recorder says after four samples of a GPU that answers so."""
    recorder = Recorder("GPU-1", set())
    left = {query: [*several] for query, several in answers.items()}
    monkeypatch.setattr(recorder, "_read", lambda query, *_: left[query].pop(0) if query in left else None)
    for _ in range(4):
        recorder.sample()
    return recorder.off()


def test_nothing_is_said_of_a_gpu_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watched(monkeypatch, HEALTHY) == watched(monkeypatch, {}) == []


def test_what_is_wrong_with_a_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    hot = {"nvmlDeviceGetCurrentClocksThrottleReasons": [0x4, 0x20, 0x80, 0x0], "nvmlDeviceGetTotalEccErrors": [2]}
    found = watched(monkeypatch, HEALTHY | hot)
    assert found == ["GPU: thermal slowdown", "GPU: power brake", "GPU: 2 memory errors"]


def test_energy_is_in_joules(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder("GPU-1", set())
    for answer, joules in ((2500, 2.5), (None, None)):
        monkeypatch.setattr(recorder, "_read", lambda query, answer=answer: answer)
        assert recorder.joules() == joules
