"""Compilations on disk, by the hash of what was compiled: the same kernel is compiled once. Only dumps read them.

Whoever compiles writes here, never the process of a candidate: a key names all that its entry was made of, so no
candidate can leave something under the key of another.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from tilewright.compiler.compilation import Compilation
from tilewright.files import home

CAP_BYTES = 256 * 2**20
_KEY = re.compile(r"[0-9a-f]{64}")


def cache_folder() -> Path:
    """Where this user's compilations are kept: `$TILEWRIGHT_CACHE`, or tilewright's folder among the user's caches."""
    if override := os.environ.get("TILEWRIGHT_CACHE"):
        return Path(override) / "compilations"
    base = os.environ.get("XDG_CACHE_HOME", "")
    caches = Path(base) if Path(base).is_absolute() else home() / ".cache"
    return caches / "tilewright" / "compilations"


@dataclass(frozen=True)
class Freed:
    """What a cleaning removed."""

    entries: int
    bytes: int


class CompilationStore:
    """The compilations in one folder, at most `cap_bytes` of them; the ones used longest ago go first."""

    def __init__(self, folder: Path, cap_bytes: int = CAP_BYTES) -> None:
        self.folder = folder
        self._cap = cap_bytes

    def load(self, key: str) -> Compilation | None:
        """The entry of that key, or None where there is none that can be read."""
        path = self._path(key)
        try:
            found = Compilation.model_validate_json(gzip.decompress(path.read_bytes()))
        except (OSError, EOFError, ValidationError):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return found

    def save(self, key: str, made: Compilation) -> None:
        """Keep an entry. Where nothing can be written it is not kept, and nothing else happens."""
        data = gzip.compress(made.model_dump_json().encode(), compresslevel=3)
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, draft = tempfile.mkstemp(prefix=".draft-", dir=self.folder)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(draft).replace(self._path(key))
            self._evict(self._path(key))

    def clean(self) -> Freed:
        """Remove every entry."""
        freed = count = 0
        for path, size, _ in self._entries():
            with contextlib.suppress(OSError):
                path.unlink()
                freed, count = freed + size, count + 1
        with contextlib.suppress(OSError):
            self.folder.rmdir()
        return Freed(count, freed)

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} is no key of a compilation")
        return self.folder / f"{key}.json.gz"

    def _entries(self) -> list[tuple[Path, int, float]]:
        """Path, bytes and time of last use of what is there; drafts that a killed process left are among them."""
        found = []
        for path in [*self.folder.glob("*.json.gz"), *self.folder.glob(".draft-*")]:
            with contextlib.suppress(OSError):
                seen = path.lstat()
                found.append((path, seen.st_size, seen.st_mtime))
        return found

    def _evict(self, newest: Path) -> None:
        entries = sorted(self._entries(), key=lambda entry: entry[2], reverse=True)
        held = 0
        for path, size, _ in entries:
            held += size
            if held > self._cap and path != newest:
                with contextlib.suppress(OSError):
                    path.unlink()
