"""How files are put on disk, and what to do about one that cannot be written."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
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


_RIGHTS = "let this user write there (`ls -ld` shows whose it is, `lsattr -d` what protects it)"
_STORAGE = {
    errno.ENOSPC: ("the disk is full", "make room (`df -h` and `df -i` show what is left)"),
    errno.EDQUOT: ("the disk quota is used up", "make room, or raise the quota (`quota` shows it)"),
    errno.EFBIG: ("files of this process may not be that large", "raise the limit (`ulimit -f` shows it)"),
    errno.EROFS: ("the file system is read-only", "mount it writable, or work in a copy on a disk that is"),
    errno.EACCES: ("permission denied", _RIGHTS),
    errno.EPERM: ("operation not permitted", _RIGHTS),
}
"""Why a file cannot be written, and what to do, by the error's number."""
STORAGE_ERRORS = tuple(_STORAGE)
LITTLE_ROOM = 2**20


def storage_problem(error: OSError) -> str:
    """What could not be written, why, and what to do; empty for an error that has another cause."""
    if isinstance(error, FileNotFoundError) and "No usable temporary directory" in str(error):
        return "no folder for temporary files can be written; set TMPDIR to a folder with room, then do the same again"
    if isinstance(error, shutil.Error):  # many files' errors, as text
        error = next((OSError(number, os.strerror(number)) for number in _STORAGE if _says(error, number)), error)
    if error.errno not in _STORAGE or (error.filename is None and error.errno in (errno.EACCES, errno.EPERM)):
        return ""
    why, remedy = _STORAGE[error.errno]
    path = _full_folder() if error.filename is None else os.fsdecode(error.filename)
    if tempfile.tempdir is not None and path.startswith(
        (f"{tempfile.tempdir}/tilewright-", f"a file in {tempfile.tempdir}")
    ):
        remedy += ", or set TMPDIR to another folder"
    said = "" if error.strerror == os.strerror(error.errno) else f" ({error.strerror})"
    return f"{path} cannot be written: {why}{said}; {remedy}, then do the same again"


def _says(error: OSError, number: int) -> bool:
    return os.strerror(number) in str(error)


def _full_folder() -> str:
    """Where a file may lie that could not be written, if the error does not name it."""
    folders = [folder for folder in (tempfile.tempdir, Path.cwd()) if folder is not None]
    full = [folder for folder in folders if shutil.disk_usage(folder).free < LITTLE_ROOM]
    return f"a file in {full[0]}" if full else "a file"


def home() -> Path:
    """The user's home folder; `/` where none is known, as in a container with a user that it has no name for."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
