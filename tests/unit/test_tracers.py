"""How the sources of a trace are tried in turn, and what the driver leaves."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.test_trace import GEMV, HEAD, NVJET, PREAMBLE, REDUCE, SPIN, marked, row
from tilewright.profile import trace as tracing_of
from tilewright.profile import tracedriver
from tilewright.profile.activity import in_calls, read_events
from tilewright.profile.trace import FOUND, Trace, read_trace
from tilewright.profile.tracing import evidence


class Ears:
    """A stand-in for torch: `_sleep` and calls leave events, which its profiler gives back."""

    def __init__(self, deaf: int = 0) -> None:
        self.heard: list[SimpleNamespace] = []
        self.profiles = 0
        self.deaf = deaf
        self.cuda = SimpleNamespace(_sleep=lambda _: self.hear(SPIN), synchronize=lambda: None)
        kinds = SimpleNamespace(CUDA="cuda", CPU="cpu")
        self.autograd = SimpleNamespace(DeviceType=SimpleNamespace(CUDA="cuda"))
        self.profiler = SimpleNamespace(ProfilerActivity=kinds, profile=self.profile)

    def hear(self, name: str, device: str = "cuda") -> None:
        start = 10.0 * len(self.heard)
        span = SimpleNamespace(start=start, elapsed_us=lambda: 4.0)
        self.heard.append(SimpleNamespace(name=name, time_range=span, id=len(self.heard) + 1, device_type=device))

    def profile(self, activities: list[str]) -> Any:
        first, self.profiles = len(self.heard), self.profiles + 1
        deaf = self.profiles <= self.deaf
        return contextlib.nullcontext(SimpleNamespace(events=lambda: [] if deaf else self.heard[first:]))


@pytest.mark.parametrize("deaf", [0, 1])
def test_the_driver_traces_warmed_up_calls_between_marks(deaf: int) -> None:
    torch = Ears(deaf)

    def call(number: int) -> None:
        torch.hear("cudaLaunchKernel", "cpu")
        torch.hear(GEMV)

    listen = tracedriver._ears(torch)
    found = tracedriver._traced(torch, (call, True), listen, 100.0)
    calls = in_calls(read_events(json.loads(json.dumps(found["events"]))))
    assert (len(calls), found["calls"], found["cached"]) == (50, 50, True)
    assert all([one.name for one in call] == [GEMV] for call in calls)
    with pytest.raises(RuntimeError, match="recorded no kernel"):
        tracedriver._ears(Ears(deaf=9))


FAKE = """#!/bin/sh
if [ "$1" = stats ]; then exec cat {table}; fi
echo "$@" >> {seen}; echo "$DISABLE_AUTOTUNE" >> {seen}
{profile}
"""
WORKS = f"cp {{found}} {FOUND}; touch run.nsys-rep"


def fake(folder: Path, profile: str, calls: int = 5) -> Path:
    """A program that behaves as nsys; its driver found one case."""
    found, listed = folder / "told.json", folder / "table.csv"
    found.write_text(json.dumps({"own": [GEMV], "cases": [{"calls": calls, "cached": False, "events": []}]}))
    activities = marked([], *[[(GEMV, 56.5)]] * 5)
    rows = [row(one.start_us, one.us, one.launch, one.name) for one in activities]
    listed.write_text(PREAMBLE + "\n".join([HEAD, *rows]) + "\n")
    path = folder / "nsys"
    path.write_text(FAKE.format(seen=folder / "seen", table=listed, profile=profile.format(found=found)))
    path.chmod(0o755)
    return path


def told_by(script: str) -> Callable[[dict[str, Any], str], list[str]]:
    return lambda job, source: ["/bin/sh", "-c", script]


def read(monkeypatch: pytest.MonkeyPatch, nsys: Path | None, **options: Any) -> Trace:
    monkeypatch.setattr(tracing_of, "find_nsys", lambda: str(nsys) if nsys else None)
    files, cases = {"task/kernel.py": b""}, [{"M": 1}]
    return asyncio.run(read_trace({}, files, PurePosixPath("task"), cases, [234928128.0], **options))


def test_nsys_is_asked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(monkeypatch, fake(tmp_path, WORKS))
    assert (found.source, found.failed) == ("nsys", {})
    (case,) = found.cases
    assert case is not None
    assert (case.calls, case.us, case.kernels[0].whose, case.kernels[0].kernel) == (5, 56.5, "ours", "gemv_kernel")
    assert case.gb_s == pytest.approx(4158.0, abs=0.1)
    assert found.summary.startswith("nsys, in ")
    assert "torch.profiler would add which torch operation" in found.summary
    asked, autotune = (tmp_path / "seen").read_text().splitlines()
    assert "--capture-range=cudaProfilerApi" in asked
    assert autotune == "1"
    old = 'case "$*" in *graph-trace*) echo "unrecognised option --cuda-graph-trace"; exit 1;; esac; ' + WORKS
    again = read(monkeypatch, fake(tmp_path, old))  # it lacks an option, and is asked without it
    assert (again.source, again.failed) == ("nsys", {})


FAILURES = [
    ("touch run.qdstrm; echo 'Error: the importer is not there'", 5, "could not make a report of that: Error: the"),
    ("exit 3", 5, "ended with status 3"), ("touch run.nsys-rep", 5, "left nothing"),
    (WORKS, 7, "6 calls are in the trace, and 8 were made"),
]  # fmt: skip


@pytest.mark.parametrize(("profile", "calls", "why"), FAILURES)
def test_where_nsys_fails_cupti_is_tried_and_neither_costs_the_profile(
    profile: str, calls: int, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing_of, "_driver", told_by("echo 'RuntimeError: no CUPTI'; exit 1"))
    found = read(monkeypatch, fake(tmp_path, profile, calls))
    assert why in found.failed["nsys"]
    assert (found.summary[:12], found.failed["torch.profiler"]) == ("none: nsys: ", "RuntimeError: no CUPTI")


def test_cupti_takes_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [[*one] for one in marked(*[[(NVJET, 55.0), (REDUCE, 2.0)]] * 5)]
    path = tmp_path / "told.json"
    path.write_text(json.dumps({"own": [], "cases": [{"calls": 5, "cached": True, "events": events}]}))
    monkeypatch.setattr(tracing_of, "_driver", told_by(f"cp {path} {FOUND}; exit 139"))
    found = read(monkeypatch, None)
    assert (found.source, found.failed) == ("torch.profiler", {"nsys": "neither on PATH nor where CUDA puts it"})
    assert found.cases[0] is not None
    assert "some from the L2 cache" in evidence(found.cases[0])[0]
    assert "nsys would add the host's calls" in found.summary


LEFT = [
    (f"echo '{{\"own\": 3' > {FOUND}", "cannot be read"), (f"ln -s /etc/passwd {FOUND}", "left nothing"),
    (f'echo \'{{"own": [], "cases": [{{"calls": 5, "cached": true, "events": [[]]}}]}}\' > {FOUND}', "0 of 5 calls"),
    ("echo 'CandidateFailure: RuntimeError: no'; exit 1", "RuntimeError: no"), ("sleep 60", "stopped after 1 s"),
]  # fmt: skip


@pytest.mark.parametrize(("script", "why"), LEFT)
def test_what_the_driver_leaves_is_not_believed(script: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing_of, "_driver", told_by(script))
    found = read(monkeypatch, None, limit_s=1.0)
    assert why in found.failed["torch.profiler"]
    assert found.cases == []
