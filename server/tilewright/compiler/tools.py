"""Where the compiler's programs are: the wheels' first, then the ones on PATH."""

from __future__ import annotations

import shutil
from pathlib import Path


def _find(name: str) -> str | None:
    try:
        import nvidia.cu13

        found = shutil.which(name, path=str(Path(next(iter(nvidia.cu13.__path__))) / "bin"))
    except ImportError:
        found = None
    return found or shutil.which(name)


def find_tileiras() -> str | None:
    """Path of tileiras, the Tile IR compiler, or None."""
    return _find("tileiras")


def find_nvdisasm() -> str | None:
    """Path of nvdisasm, which turns a cubin into SASS, or None."""
    return _find("nvdisasm")
