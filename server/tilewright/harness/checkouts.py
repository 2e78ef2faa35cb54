"""A version of the repository on disk: a fresh copy before each run, so that nothing is inherited from another run."""

from __future__ import annotations

import shutil
from pathlib import Path

from tilewright.harness.commands import Place

SETTINGS = ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "pyproject.toml", "tox.ini", "setup.cfg")
"""Files in which pytest looks for its settings."""


def fresh_place(snapshot: Path, folder: Path, workplace: str = ".", hidden: Path | None = None) -> Place:
    """A copy of a snapshot in `folder`, and a new scratch folder beside it; those of the run before are gone. Commands
    run in `workplace` of the copy. No run may write to the snapshot."""
    root, scratch = folder / "checkout", folder / "run"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700, parents=True)
    fresh_copy(snapshot, root)
    return Place(root, root / workplace, scratch, hidden)


def fresh_copy(snapshot: Path, into: Path) -> None:
    """Make `into` a copy of a snapshot; what lay there is gone. Scripts can be executed."""
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(snapshot, into, symlinks=True)
    for path in into.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb", buffering=0) as file:
                if file.read(2) == b"#!":
                    path.chmod(0o755)
    _stop_pytest_here(into)


def _stop_pytest_here(root: Path) -> None:
    """See that pytest looks for its settings no further up than in `root`: above it, others may write."""
    files = [root / name for name in SETTINGS]
    if not any(file.is_file() and ("pytest" in file.name or b"pytest" in file.read_bytes()) for file in files):
        (root / "pytest.ini").write_text("[pytest]\n")
