"""How files are put on disk."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a file's content at once: a reader sees the old content or the new, also after a crash or on a full disk.

    Keeps the mode of a file that is there. Raises `OSError`, which names `path`."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            draft.chmod(path.stat().st_mode & 0o7777)
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        error.filename, error.filename2 = str(path), None
        raise
    sync_folder(path.parent)


def repository_of(path: Path) -> Path | None:
    """The root of the repository that a path lies in; None where there is none, or where this user may not look."""
    try:
        path = path.resolve()
        return next((folder for folder in (path, *path.parents) if (folder / ".git").exists()), None)
    except (OSError, RuntimeError, ValueError):  # a loop of links, a name that is too long or holds a NUL
        return None


STORAGE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM)
"""The numbers of errors that say that something cannot be written."""


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
