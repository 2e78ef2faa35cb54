"""Where the examples, skills and references are: in the wheel, or beside the package in a source tree."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_IN_WHEEL = (_PACKAGE / "bundled").is_dir()
_ROOT = _PACKAGE / "bundled" if _IN_WHEEL else _PACKAGE.parent.parent


def examples() -> Path:
    """The folder of the example tasks."""
    return _ROOT / ("examples" if _IN_WHEEL else "assets/examples")


def skills() -> Path:
    """The folder of the skills."""
    return _ROOT / "skills"


def references() -> Path:
    """The folder of the pages that skills refer to."""
    return _ROOT / "references"
