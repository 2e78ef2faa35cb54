"""Makes kernels.ptx from kernels.cu: `make kernels`. Needs a C++ compiler beside this project's own nvcc.

PTX and not SASS, since it serves every GPU from `ARCH` on; the driver compiles it when the replayer starts.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from pathlib import Path

from tilewright.compiler.tools import find_tool

FOLDER = Path(__file__).parent
SOURCES = (FOLDER / "kernels.cu", FOLDER / "mix.h")
PTX = FOLDER / "kernels.ptx"
ARCH = "compute_80"
ISA = "7.8"
"""A version of PTX that every driver of CUDA 12 knows; nvcc writes its own, and these kernels need nothing newer."""


def built() -> str:
    """The PTX of the sources as they are now, which it names by their hash. Raises as `compiled` does."""
    return f"// sources {sources_hash()}\n{compiled(SOURCES[0])}"


def compiled(source: Path) -> str:
    """The PTX of a CUDA file. Raises `OSError`, and `subprocess.CalledProcessError` where nvcc fails."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "made.ptx")
        subprocess.run([find_tool("nvcc") or "nvcc", "-O3", f"-arch={ARCH}", "-ptx", "-o", made, source], check=True)
        text = made.read_text()
    return re.sub(r"^\.version \S+", f".version {ISA}", text[text.index("\n.version") + 1 :])


def sources_hash() -> str:
    """SHA-256 of the kernels' sources."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()


if __name__ == "__main__":
    PTX.write_text(built())
