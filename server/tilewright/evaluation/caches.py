"""What compilers made of a candidate, carried from a worker that ran it to the next one that does.

A worker writes to its own folder alone, and what it compiled is shown to no worker of another candidate. So the referee
copies: to a worker's folder before it loads its candidate, and out of it once it has ended. It never writes to a folder
where a candidate may have laid links. What the workers of a race compile, which load one version after the other, is
not carried.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

from tilewright.frontends.protocol import FRONTENDS

COMPILED = "compiled"
"""The folder of a worker's scratch that holds what was compiled: cuTile's database, and a folder of Triton's."""
LIMIT = 512 * 2**20
"""Bytes that are carried at most."""
ENTRIES = 10_000
"""Files that are carried at most."""
TUNED = ".autotune.json"
"""How the names of files end in which Triton keeps what a tuner chose: each process is to choose by itself."""
_TURN = threading.Lock()
GROUP = "__grp__"
"""How the names of files begin in which Triton lists, by absolute paths, what belongs together."""


def triton_cache(scratch: Path) -> Path:
    """Where Triton keeps what it compiles in the worker with this scratch folder."""
    return scratch / COMPILED / "triton"


def compiler_variables(scratch: Path) -> dict[str, str]:
    """The environment variables by which compilers find their caches in the worker with this scratch folder, and those
    that a frontend has."""
    return {name: value for frontend in FRONTENDS for name, value in frontend.variables.items()} | {
        "CUDA_TILE_CACHE_DIR": str(scratch / COMPILED),
        "TRITON_CACHE_DIR": str(triton_cache(scratch)),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "cache" / "inductor"),
    }


def copy_cache(source: Path, target: Path) -> None:
    """Copy the plain files below `source` to below `target`, as far as the limits go, and nothing that a link leads
    to."""
    if source.is_dir():  # something was compiled
        with _TURN:  # two processes of a candidate may end side by side
            _copy(source, target)


def forget_choices(folder: Path) -> None:
    """Delete from a folder of what was compiled what tuners chose."""
    with _TURN:
        for _, _, names, handle in _walked(folder):
            for name in names:
                if name.endswith(TUNED):
                    with contextlib.suppress(OSError):
                        os.unlink(name, dir_fd=handle)


def _copy(source: Path, target: Path) -> None:
    left, count = LIMIT, 0
    for parent, _, names, folder in _walked(source):
        into = target / os.path.relpath(parent, source)
        for name in names:
            count += 1
            if count > ENTRIES:
                return
            if name.endswith(TUNED):
                continue
            with contextlib.suppress(OSError):
                handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
                with os.fdopen(handle, "rb") as file:
                    found = os.fstat(handle)
                    if stat.S_ISREG(found.st_mode) and found.st_size <= left:
                        left -= found.st_size
                        into.mkdir(mode=0o700, parents=True, exist_ok=True)
                        (into / name).write_bytes(_moved(name, file.read(found.st_size), source, target))


def _walked(source: Path) -> Iterator[tuple[str, list[str], list[str], int]]:
    """The folders below `source`, as far as they can be read."""
    with contextlib.suppress(OSError):
        yield from os.fwalk(source, follow_symlinks=False)


def _moved(name: str, content: bytes, source: Path, target: Path) -> bytes:
    """The file's content, with paths below `target` in place of those below `source` where it is a list of files."""
    if not name.startswith(GROUP):
        return content
    old, new = (json.dumps(str(folder))[1:-1].encode() for folder in (source, target))
    return content.replace(old, new)
