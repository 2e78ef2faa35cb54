"""What `profile` replays, and when it does not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.evaluation.results import CaseTiming, Level, StoredProgram
from tilewright.gpu.lease import GpuBusy
from tilewright.profile import profiler
from tilewright.profile.counters import Counters
from tilewright.profile.profiler import Profiler, _program
from tilewright.profile.recording import Kernels


def test_a_case_has_a_program_or_a_reason(tmp_path: Path) -> None:
    timing = CaseTiming(case={"N": 1}, level=Level.IN_PROCESS, latency_ms=1.0, note="it waits for the GPU")
    assert str(_program(tmp_path, timing)).endswith("not looked at: it waits for the GPU")
    stored = StoredProgram(identity="", sha256="ab", size=1, note="not written: it is too large")
    timing = timing.model_copy(update={"program": stored})
    assert _program(tmp_path, timing) == "its program was not written: it is too large"
    path = tmp_path / "ab.program"
    path.touch()
    assert _program(tmp_path, timing) == path


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done while the GPU is held."""
    log: list[str] = []

    @contextlib.contextmanager
    def lease(uuid: str, *_: Any) -> Iterator[None]:
        if uuid == "busy":
            raise GpuBusy("GPU busy is in use")
        log.append(f"hold {uuid}")
        yield
        log.append("free")

    def record(programs: Any, work: Any, own: Any) -> Kernels:
        log.append(f"record {programs} {work} {own}")
        return Kernels(seconds=2.0)

    async def count(programs: Any) -> Counters:
        log.append(f"count {programs}")
        return Counters(seconds=3.0)

    monkeypatch.setattr(profiler, "lease", lease)
    monkeypatch.setattr(profiler, "record_kernels", record)
    monkeypatch.setattr(profiler, "read_counters", count)
    return log


def looked(uuid: str) -> Profiler:
    found, job = Profiler(SimpleNamespace()), SimpleNamespace(tell=lambda text: None)  # type: ignore[arg-type]
    asyncio.run(found._look(job, ["it waits"], [8.0], {"k"}, uuid))  # type: ignore[arg-type]
    return found


def test_the_gpu_is_held_for_cupti_and_ncu(held: list[str]) -> None:
    found = looked("GPU-1")
    assert held == ["hold GPU-1", "record ['it waits'] [8.0] {'k'}", "count ['it waits']", "free"]
    assert (found.kernels.seconds, found.counters.seconds) == (2.0, 3.0)


def test_a_gpu_that_is_busy_costs_no_profile(held: list[str]) -> None:
    found = looked("busy")
    assert found.kernels.summary == found.counters.summary == "none: GPU busy is in use"
    assert held == []
