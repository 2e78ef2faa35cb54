"""Notes how tests on a GPU ended, where TILEWRIGHT_GPU_RECORD names a file for that."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.gpu.evidence import TESTS, record, write

_OUTCOMES: dict[str, str] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.nodeid.startswith(TESTS) and (report.when == "call" or report.outcome != "passed"):
        _OUTCOMES[report.nodeid] = report.outcome


def pytest_sessionfinish(session: pytest.Session) -> None:
    target = os.environ.get("TILEWRIGHT_GPU_RECORD")
    if not target or not any(outcome != "skipped" for outcome in _OUTCOMES.values()):
        return
    if len(_OUTCOMES) != session.testscollected:  # a part of the tests says nothing of the whole
        return
    from tilewright.gpu.telemetry import find_gpu

    gpu = find_gpu()
    versions = {name: version(name) for name in ("torch", "cuda-tile", "cuda-bindings")}
    versions |= {"python": platform.python_version(), "gpu": gpu.name if gpu else "none"}
    write(record(_OUTCOMES, versions), Path(target))
