"""What an attack leaves behind: noted, and taken away."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import site
import tempfile
from collections.abc import Iterator
from pathlib import Path

import tilewright
from tilewright.isolation.supervisor import descendants

LITTER = "redteam-"
"""What attacks leave on disk, and call their processes, starts so."""


@contextlib.contextmanager
def guarded(left: list[str]) -> Iterator[None]:
    """Note what was left behind meanwhile, in `left`, and take it away: files, processes, edits of the evaluator."""
    package = Path(tilewright.__file__).parent
    before = {path: path.read_bytes() for path in package.rglob("*.py")}
    site_files = {path for folder in _site_folders() for path in folder.iterdir()}
    try:
        yield
    finally:
        for path in [path for path in package.rglob("*.py") if path not in before]:
            left.append(f"file {path.name} in the evaluator's package")
            path.unlink()
        for path, content in before.items():
            if not path.is_file() or path.read_bytes() != content:
                left.append(f"edit of {path.name} in the evaluator's package")
                path.write_bytes(content)
        for path in [path for folder in _site_folders() for path in folder.iterdir() if path not in site_files]:
            if LITTER in path.name or path.name in ("sitecustomize.py", "usercustomize.py"):
                left.append(f"file {path.name} among Python's modules")
                path.unlink()
        for folder in ("/dev/shm", "/tmp", "/var/tmp", tempfile.gettempdir(), str(Path.home())):
            for path in Path(folder).glob(f"{LITTER}litter-*"):
                left.append(f"file {path}")
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for pid in _stray_processes():
            left.append("a process")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _site_folders() -> list[Path]:
    """Where a Python that starts looks for modules: an editable install adds the package's own parent."""
    folders = [*site.getsitepackages(), site.getusersitepackages(), str(Path(tilewright.__file__).parent.parent)]
    return [folder for folder in map(Path, folders) if folder.is_dir()]


def _stray_processes() -> list[int]:
    """Below this process: a battery beside this one has its own."""
    found = []
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if f"{LITTER}daemon".encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                found.append(pid)
    return found
