"""From TTIR to machine code and all that can be read from it. Runs no Python of a kernel's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.compiler import sass
from tilewright.compiler.compilation import Compilation
from tilewright.compiler.cubin import disassemble, resources
from tilewright.compiler.texts import TEXT_LIMIT, read_text, tidy

if TYPE_CHECKING:
    from tilewright.compiler.assembling import Lowered

ERROR_LINES = 12


def assemble(source: Lowered, timeout_s: float, folder: Path | None = None) -> Compilation:
    """Compile `source`, in `timeout_s` seconds at most; `folder` is for temporary files.

    A failure is a `Compilation` with its `error`. Raises `MissingTool` where nvdisasm is not there.
    """
    ttir = source.bytecode.decode("utf-8", "replace")[:TEXT_LIMIT]
    with tempfile.TemporaryDirectory(prefix="compile-", dir=folder) as name:
        place = Path(name)
        (place / "kernel.ttir").write_bytes(source.bytecode)
        (place / "options.json").write_text(json.dumps(source.options))
        started = time.perf_counter()
        error, timed_out = _run(place, source.arch, timeout_s)
        seconds = time.perf_counter() - started
        ttgir, ptx = (tidy(read_text(place / f"kernel.{stage}")) for stage in ("ttgir", "ptx"))
        known = {"ttir": tidy(ttir), "ttgir": ttgir, "ptx": ptx, "seconds": seconds}
        if error:
            return source.failed(error, timed_out=timed_out, **known)
        cubin = (place / "kernel.cubin").read_bytes()
        shared = int(json.loads((place / "made.json").read_text())["shared"])
        text = disassemble(cubin, place)
        listed = list(sass.instructions(text))
        found = resources(cubin, listed, source.arch, shared)
        mix = sass.mix_by_line(listed, [])
        if found.ctas_per_sm == 0:
            occupied = (
                f"{found.shared_bytes} bytes of shared memory, {found.threads} threads of {found.registers} registers"
            )
            full = f"out of resource: {found.limited_by}: no block of {occupied} fits on an SM of {source.arch}"
            return source.failed(full, sass=tidy(text), resources=found, **known)
        return source.failed("", sass=tidy(text), resources=found, mix=mix, **known)


def _run(place: Path, arch: str, timeout_s: float) -> tuple[str, bool]:
    """What went wrong, and whether it was time that ran out."""
    command = [sys.executable, "-I", "-B", "-m", "tilewright.compiler.tritoncompile", str(place), arch]
    environment = os.environ | {"TRITON_CACHE_DIR": str(place / "cache"), "TMPDIR": str(place)}
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=timeout_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"COMPILE TIMEOUT: Triton did not finish within {timeout_s:g} s; use smaller tiles", True
    if done.returncode == 0:
        return "", False
    lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
    last = lines[-1] if lines else f"Triton's compiler ended with status {done.returncode}"
    return "\n".join([last, *lines[-ERROR_LINES:-1]]), False
