"""What the driver of a trace records, and what is made of what it leaves."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from cuda.tile._cext import default_tile_context

from tests.unit.kernels import softmax
from tests.unit.test_trace import GEMV, NVJET, REDUCE, SPIN, marked
from tilewright.compiler.signature import signature_of
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


def test_the_compiler_says_which_kernels_are_the_candidates_own(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, own = type(softmax), set[str]()
    monkeypatch.setattr(kind, "_compile", kind._compile)
    tracedriver.watch_compilers(own)
    rows = torch.rand(32, 32), torch.empty(32, 32), 32
    made = softmax._compile(signature_of(softmax, rows), default_tile_context, (9, 0))[1]
    assert own == {made}


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


def told_by(script: str) -> Callable[[dict[str, Any]], list[str]]:
    return lambda job: ["/bin/sh", "-c", script]


def read(**options: Any) -> Trace:
    files, cases = {"task/kernel.py": b""}, [{"M": 1}]
    return asyncio.run(read_trace({}, files, PurePosixPath("task"), cases, [234928128.0], **options))


def test_a_trace_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [[*one] for one in marked(*[[(NVJET, 55.0), (REDUCE, 2.0)]] * 5)]
    path = tmp_path / "told.json"
    path.write_text(json.dumps({"own": [], "cases": [{"calls": 5, "cached": True, "events": events}]}))
    monkeypatch.setattr(tracing_of, "_driver", told_by(f"cp {path} {FOUND}; exit 139"))
    found = read()
    assert found.failed == {}
    assert found.summary.startswith("CUPTI through torch.profiler, in ")
    assert found.cases[0] is not None
    assert "some from the L2 cache" in evidence(found.cases[0])[0]


LEFT = [
    (f"echo '{{\"own\": 3' > {FOUND}", "cannot be read"), (f"ln -s /etc/passwd {FOUND}", "left nothing"),
    (f'echo \'{{"own": [], "cases": [{{"calls": 5, "cached": true, "events": [[]]}}]}}\' > {FOUND}', "0 marks among 0"),
    ("echo 'CandidateFailure: RuntimeError: no'; exit 1", "RuntimeError: no"), ("sleep 60", "stopped after 1 s"),
]  # fmt: skip


@pytest.mark.parametrize(("script", "why"), LEFT)
def test_what_the_driver_leaves_is_not_believed(script: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing_of, "_driver", told_by(script))
    found = read(limit_s=1.0)
    assert why in found.failed["trace"]
    assert found.summary.startswith("none: trace: ")
    assert found.cases == []
