"""Where the examples, skills and references are: in the wheel, or beside the package in a source tree."""

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


def references() -> Path:
    """The folder of the pages that skills refer to."""
    return _first(_PACKAGE / "bundled" / "references", _SOURCE / "references")


def _first(*places: Path) -> Path:
    for place in places:
        if place.exists():
            return place
    raise FileNotFoundError(f"none of {', '.join(map(str, places))} exists; reinstall tilewright")
