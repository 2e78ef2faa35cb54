"""Candidates as content: which files they are, and folders from which a worker can import exactly those."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from tilewright.wire.record import Record

if TYPE_CHECKING:
    from tilewright.repository import Files

SNAPSHOTS = "snapshots"
TREE_LIMIT_BYTES = 512 * 2**20


class Snapshot(Record):
    """A candidate on disk: its files below `root`, the task's folder among them, and the compile cache that is its
    alone."""

    id: str
    root: Path
    task: PurePosixPath
    cache: Path


def content_id(files: Files) -> str:
    """The identity of a candidate: the SHA-256 over its editable files' paths and contents."""
    digest = hashlib.sha256()
    for path in sorted(files):
        name = path.encode()
        digest.update(len(name).to_bytes(8, "big") + name)
        digest.update(len(files[path]).to_bytes(8, "big") + files[path])
    return digest.hexdigest()


class SnapshotStore:
    """Snapshots of one session under a private folder: the protected files of the baseline, overlaid."""

    def __init__(self, folder: Path, protected: Files, task_folder: PurePosixPath) -> None:
        """`protected` are the baseline commit's files; raises ValueError where they are too many to copy."""
        size = sum(len(content) for content in protected.values())
        if size > TREE_LIMIT_BYTES:
            raise ValueError(
                f"the repository's tracked files take {size >> 20} MiB, over the limit of {TREE_LIMIT_BYTES >> 20} MiB "
                "for a snapshot; put the task into a smaller repository or a git worktree with sparse checkout"
            )
        self._folder = folder
        self._protected = protected
        self._task_folder = task_folder

    def write_baseline(self) -> None:
        """Write the baseline's files anew; the referee reads the task there when it starts."""
        self._write("baseline", {})

    def task_folder(self) -> Path:
        """The task's folder among the baseline's files."""
        return self._folder / SNAPSHOTS / "baseline" / self._task_folder

    def write(self, *candidates: Files) -> list[Snapshot]:
        """The snapshots of these candidates, written anew, and of no others: what an earlier run did to one is gone."""
        names = [content_id(editable) for editable in candidates]
        for old in (self._folder / SNAPSHOTS).glob("*"):
            if old.name not in (*names, "baseline"):
                shutil.rmtree(old, ignore_errors=True)
        found = []
        for name, editable in zip(names, candidates, strict=True):
            cache = self.cache(name)
            cache.mkdir(mode=0o700, parents=True, exist_ok=True)
            found.append(Snapshot(id=name, root=self._write(name, editable), task=self._task_folder, cache=cache))
        return found

    def cache(self, name: str) -> Path:
        """The folder where what is compiled of the candidate with this id is kept."""
        return self._folder / "cache" / name

    def _write(self, name: str, overlay: Files) -> Path:
        target = self._folder / SNAPSHOTS / name
        shutil.rmtree(target, ignore_errors=True)
        for path, content in (self._protected | overlay).items():
            file = target / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return target
