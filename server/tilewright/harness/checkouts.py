"""An arm on disk: the baseline's files, overlaid with the arm's editable ones, the same before every run.

What a run writes into its checkout is gone before the next one: nothing is inherited but what was committed.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

PYTEST_FILES = ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml")
PYTEST_TABLES = {"pyproject.toml": "[tool.pytest", "tox.ini": "[pytest]", "setup.cfg": "[tool:pytest]"}


class Stamp(NamedTuple):
    """What changes whenever a file is written, replaced or linked; no process can set a file's ctime."""

    inode: int
    size: int
    changed_ns: int
    mode: int


class Spoiled(Exception):
    """A checkout could not be brought back to what was committed; what ran on it counts for nothing."""


class Checkout:
    """A folder of files that runs may write to, and that `renew` brings back to what it was when this was made."""

    def __init__(
        self, root: Path, pristine: Checkout | None = None, own: Iterable[str] = (), results: Iterable[Path] = ()
    ) -> None:
        """Takes the files below `root` as they are, `results` left out: those are files that a run has to write itself.

        `pristine` is the baseline's checkout, which no run may write to: all files are its, but those that it does not
        have, or not of that size, and those that `own` names. What is missing is taken from there, or from memory.
        """
        self.root = root
        self._pristine = pristine
        self._own: dict[str, bytes] = {}
        for path in results:
            path.unlink(missing_ok=True)
        if pristine is not None:
            _stop_pytest_here(root)
        self._known, self._folders = _scan(root)
        if pristine is None:
            self._scripts = {name for name in self._known if _is_script(_beginning(root / name))}
            return
        named = {*own}
        for name, stamp in self._known.items():
            if name in named or name not in pristine._known or stamp.size != pristine._known[name].size:
                self._own[name] = (root / name).read_bytes()
        self._scripts = (pristine._scripts & self._known.keys()) - self._own.keys()
        self._scripts |= {name for name, content in self._own.items() if _is_script(content)}
        for name in self._scripts:
            (root / name).chmod(0o755)
            self._known[name] = _stamp(root / name)

    def renew(self) -> None:
        """Delete what a run has left, and restore what it changed. Raises `Spoiled` where that fails."""
        try:
            found, folders = _scan(self.root)
            for name in sorted(found.keys() - self._known.keys()):
                (self.root / name).unlink()
            for name in sorted(folders - self._folders, reverse=True):
                shutil.rmtree(self.root / name, ignore_errors=True)
            for name in sorted(self._folders - folders):
                (self.root / name).mkdir(parents=True, exist_ok=True)
            for name, stamp in self._known.items():
                if found.get(name) != stamp:
                    self._restore(name)
        except OSError as error:
            raise Spoiled(f"a run left its checkout in a state that cannot be restored: {error}") from None

    def _restore(self, name: str) -> None:
        path = self.root / name
        content = self._own[name] if name in self._own else self._from_baseline(name)
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        path.chmod(stat.S_IMODE(self._known[name].mode))
        self._known[name] = _stamp(path)

    def _from_baseline(self, name: str) -> bytes:
        assert self._pristine is not None
        source = self._pristine.root / name
        if _stamp(source) != self._pristine._known[name]:
            raise Spoiled(f"{name} of the baseline's checkout was changed")
        return source.read_bytes()


def _scan(root: Path) -> tuple[dict[str, Stamp], set[str]]:
    """All files below `root` (links among them, as links) with their stamps, and all folders."""
    files: dict[str, Stamp] = {}
    folders: set[str] = set()
    queue = [""]
    while queue:
        prefix = queue.pop()
        with os.scandir(root / prefix) as entries:
            for entry in entries:
                name = f"{prefix}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    if entry.stat(follow_symlinks=False).st_mode & 0o700 != 0o700:
                        Path(entry.path).chmod(0o755)
                    folders.add(name)
                    queue.append(f"{name}/")
                else:
                    files[name] = _stamp_of(entry.stat(follow_symlinks=False))
    return files, folders


def _stamp(path: Path) -> Stamp:
    return _stamp_of(path.lstat())


def _stamp_of(found: os.stat_result) -> Stamp:
    return Stamp(found.st_ino, found.st_size, found.st_ctime_ns, found.st_mode)


def _stop_pytest_here(root: Path) -> None:
    """See that pytest looks for its settings no further up than in `root`: above it, others may write."""
    if any((root / name).exists() for name in PYTEST_FILES):
        return
    for name, table in PYTEST_TABLES.items():
        if (root / name).is_file() and table in (root / name).read_text(encoding="utf-8", errors="replace"):
            return
    (root / "pytest.ini").write_text("[pytest]\n")


def _beginning(path: Path) -> bytes:
    with path.open("rb", buffering=0) as file:
        return file.read(2)


def _is_script(content: bytes) -> bool:
    return content.startswith(b"#!")
