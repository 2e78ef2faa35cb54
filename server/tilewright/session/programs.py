"""The device programs of a session: where their files lie."""

from __future__ import annotations

from pathlib import Path


def programs_folder(sandbox: Path, session: str) -> Path:
    """Where a session's programs lie, each by the SHA-256 of its file."""
    return sandbox / session / "programs"
