"""Where the examples and skills are: in the wheel, or beside the package in a source tree."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_SOURCE = _PACKAGE.parent.parent


def examples() -> Path:
    """The folder of the example tasks."""
    return _first(_PACKAGE / "bundled" / "examples", _SOURCE / "assets" / "examples")


def skills() -> Path:
    """The folder of the skills."""
    return _first(_PACKAGE / "bundled" / "skills", _SOURCE / "skills")


def _first(*folders: Path) -> Path:
    for folder in folders:
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"none of {', '.join(map(str, folders))} exists; reinstall tilewright")
