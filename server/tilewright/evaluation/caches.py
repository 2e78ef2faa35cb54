"""What compilers made of a candidate, carried from a worker that ran it to the next one that does.

A worker writes to its own folder alone, and what it compiled is shown to no worker of another candidate. So the referee
copies: to a worker's folder before it loads its candidate, and out of it once it has ended. What the workers of a race
compile, which load one version after the other, is not carried. A repository's tests find what the baseline's compiled.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from tilewright.frontends.protocol import FRONTENDS

COMPILED = "compiled"
"""The folder of a worker's scratch that holds what was compiled: cuTile's database, and a folder of Triton's."""
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
    """Copy the plain files below `source` to below `target`, and nothing that a link leads to."""
    with _TURN:  # two processes of a candidate may end side by side
        for path in _files_below(source):
            if not path.name.endswith(TUNED):
                copy = target / path.relative_to(source)
                with contextlib.suppress(OSError):
                    content = _moved(path.name, path.read_bytes(), source, target)
                    copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    copy.write_bytes(content)


def forget_choices(folder: Path) -> None:
    """Delete from a folder of what was compiled what tuners chose."""
    with _TURN:
        for path in _files_below(folder):
            if path.name.endswith(TUNED):
                with contextlib.suppress(OSError):
                    path.unlink()


def _files_below(folder: Path) -> Iterator[Path]:
    """The plain files below a folder, as far as they can be read."""
    for place, _, names in os.walk(folder) if not folder.is_symlink() else ():
        for path in (Path(place, name) for name in names):
            if path.is_file() and not path.is_symlink():
                yield path


def _moved(name: str, content: bytes, source: Path, target: Path) -> bytes:
    """The file's content, with paths below `target` in place of those below `source` where it is a list of files."""
    if not name.startswith(GROUP):
        return content
    old, new = (json.dumps(str(folder))[1:-1].encode() for folder in (source, target))
    return content.replace(old, new)
