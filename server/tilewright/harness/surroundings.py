"""Where a repository's commands run: the machine, and what Python there would load without being asked."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import sys
from pathlib import Path

from tilewright.evaluation.results import Environment
from tilewright.gpu.telemetry import Gpu
from tilewright.isolation.confinement import Isolation
from tilewright.roofline.bounds import Ceilings
from tilewright.task import Backend

_UNASKED = ("*.pth", "sitecustomize.py", "usercustomize.py", "*-info/entry_points.txt")


def environment(backend: Backend, gpu: Gpu | None, isolation: Isolation, startup: str) -> Environment:
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
        startup=startup,
        ceilings=Ceilings(copy_bytes_per_s=0.0, flops={}, measured=False),
    )


def startup_files(hidden: Path | None) -> dict[str, str]:
    """What decides what Python imports before a command's own code: the names in every folder of its path, and hashes
    of the files there that are read unasked (path files, site customisation, entry points such as pytest's plugins).

    Folders below `hidden` are left out, but for the interpreter's own.
    """
    found: dict[str, str] = {}
    own = Path(sys.prefix)
    for folder in [Path(entry) for entry in sys.path]:
        if not folder.is_dir() or (hidden and folder.is_relative_to(hidden) and not folder.is_relative_to(own)):
            continue
        names = sorted(entry.name for entry in folder.iterdir() if entry.name != "__pycache__")
        found[f"the names in {folder}"] = hashlib.sha256("\n".join(names).encode()).hexdigest()
        for pattern in _UNASKED:
            for path in folder.glob(pattern):
                found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
    for path in (own / "pyvenv.cfg",):
        if path.is_file():
            found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def digest(files: dict[str, str]) -> str:
    """One hash over all of them."""
    return hashlib.sha256("\n".join(f"{name} {value}" for name, value in sorted(files.items())).encode()).hexdigest()


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
