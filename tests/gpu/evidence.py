"""The record of what ran on a GPU: written by `make gpu`, and looked at where there is none.

The record names the folders that the tests in it cover, by the hash of their files. Where the hash is another one by
now, the code was changed since, and nobody knows whether it still runs.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "benchmarks" / "evidence" / "gpu-tests.json"
COVERED = tuple(
    f"server/tilewright/{name}"
    for name in ("programs", "replay", "worker", "referee", "frontends", "gpu", "wire", "isolation", "api.py")
)
TESTS = "tests/gpu/replaying"


def covered_hash() -> str:
    """SHA-256 over the files of the folders, and of the tests."""
    found = hashlib.sha256()
    for folder in (*COVERED, TESTS):
        for path in sorted([ROOT / folder, *(ROOT / folder).rglob("*")]):
            if path.is_file() and "__pycache__" not in path.parts:
                found.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()


def record(outcomes: dict[str, str], versions: dict[str, str]) -> dict[str, Any]:
    """What is kept of a run: each test's outcome, on which GPU, with which versions."""
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    return {"covered": covered_hash(), "date": date, "versions": versions, "outcomes": outcomes}


def write(made: dict[str, Any], path: Path = RECORD) -> None:
    path.write_text(json.dumps(made, indent=1) + "\n")


def stale() -> str:
    """Why the record says nothing of the code as it is; empty where it does."""
    if not RECORD.is_file():
        return "nothing is on record: run `make gpu` where there is a GPU"
    found = json.loads(RECORD.read_text())
    if found["covered"] != covered_hash():
        return f"the code was changed since the record of {found['date']}: run `make gpu` where there is a GPU"
    return ""
