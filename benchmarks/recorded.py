"""What a benchmark writes: JSON, gzipped where the file's name ends in .gz, with what it was made by and on."""

from __future__ import annotations

import gzip
import json
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any


def header(arguments: str) -> dict[str, Any]:
    """The command, the commit, the first GPU (`none` without one), today, the versions: what every record begins with.
    `arguments`: the benchmark's module and what it takes, `advice.gemv measure FILE`."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]  # torch would make a context
    try:
        found = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0].split(", ")
    except (OSError, subprocess.CalledProcessError, IndexError):
        found = ["none"]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=Path(__file__).parent, capture_output=True)
    versions = {package: version(package) for package in ("torch", "cuda-tile")}
    return {
        "command": f"python -m benchmarks.{arguments}",
        "commit": commit.stdout.decode().strip() or "none",
        "gpu": found[0],
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "versions": versions | {"python": platform.python_version()} | dict(zip(["driver"], found[1:], strict=False)),
    }


def read(path: Path) -> Any:
    raw = path.read_bytes()
    return json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)


def write(path: Path, record: Any) -> None:
    raw = (json.dumps(record) + "\n").encode()
    path.write_bytes(gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)
