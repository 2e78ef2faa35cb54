"""Where the examples, skills and the playbook are: in the wheel, or beside the package in a source tree."""

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


def playbook() -> Path:
    """The page that explains the treatments of `dump_ir`."""
    return _first(_PACKAGE / "bundled" / "references" / "playbook.md", _SOURCE / "references" / "playbook.md")


def _first(*places: Path) -> Path:
    for place in places:
        if place.exists():
            return place
    raise FileNotFoundError(f"none of {', '.join(map(str, places))} exists; reinstall tilewright")
