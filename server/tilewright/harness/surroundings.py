"""Where a repository's commands run."""

from __future__ import annotations

import importlib.metadata
import platform
from pathlib import Path

from tilewright.evaluation.results import Environment
from tilewright.gpu.telemetry import Gpu
from tilewright.isolation.confinement import Isolation
from tilewright.roofline.bounds import Ceilings
from tilewright.task import Backend


def environment(backend: Backend, gpu: Gpu | None, isolation: Isolation) -> Environment:
    """The session's environment. No ceiling is known: a command task says nothing of its work."""
    return Environment(
        backend=backend,
        device=gpu.name if gpu else _processor(),
        arch=gpu.arch if gpu else platform.machine(),
        device_uuid=gpu.uuid if gpu else "",
        driver=gpu.driver if gpu else "",
        torch=_version("torch"),
        cuda_tile=_version("cuda-tile"),
        compiler="",
        python=platform.python_version(),
        isolation=str(isolation),
        confined=isolation.confined,
        unprotected=isolation.unprotected,
        ceilings=Ceilings(copy_bytes_per_s=0.0, flops={}, measured=False),
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
