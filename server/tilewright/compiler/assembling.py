"""From Tile IR bytecode or TTIR to machine code and all that can be read from it. Runs no Python of a kernel's."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from tilewright.compiler.compilation import Compilation, Lowered
from tilewright.compiler.cubin import machine_code
from tilewright.compiler.remarks import parse_remarks
from tilewright.compiler.texts import TEXT_LIMIT, read_text, tidy
from tilewright.compiler.tools import find_tool, need_tool

ERROR_LINES = 12
REPORTED_ERROR = re.compile(r'^(?:loc\([^)]*?"?(?P<file>[^":]+)"?:(?P<line>\d+):\d+[^)]*\): )?error: ', re.MULTILINE)


def assemble(source: Lowered, timeout_s: float, folder: Path | None = None) -> Compilation:
    """Compile `source`, in `timeout_s` seconds at most; `folder` is for temporary files.

    A failure is a `Compilation` with its `error`. Raises `MissingTool` where tileiras or nvdisasm is not there.
    """
    if source.error:
        return source.compiled(source.error)
    with tempfile.TemporaryDirectory(prefix="compile-", dir=folder) as name:
        place = Path(name)
        return _triton(source, place, timeout_s) if source.frontend == "triton" else _cutile(source, place, timeout_s)


def _cutile(source: Lowered, place: Path, timeout_s: float) -> Compilation:
    bytecode = place / "kernel.tileirbc"
    bytecode.write_bytes(source.bytecode)
    found: dict[str, Any] = {"tile_ir": _tile_ir(bytecode, timeout_s)}
    command = [
        need_tool("tileiras"), str(bytecode), "-o", str(place / "kernel.cubin"),
        "--gpu-name", source.arch, f"-O{source.opt_level}", "--lineinfo",
        "--remarks=all", "--remark-format=yaml", f"--remarks-output-file={place / 'remarks.yaml'}",
    ]  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if name not in ("CUDA_HOME", "CUDA_PATH")}
    started = time.perf_counter()
    status, said = _run(command, place, environment, timeout_s)
    remarks = parse_remarks(read_text(place / "remarks.yaml"))
    found |= {"remarks": remarks, "seconds": time.perf_counter() - started, "timed_out": status is None}
    if status is None:
        return source.compiled(_too_long("tileiras", timeout_s), **found)
    if status:
        return source.compiled(_complaint(said) or f"tileiras ended with status {status}", **found)
    matmuls = [(one.file, one.line) for one in remarks if one.category == "tensor-core"]
    code = machine_code((place / "kernel.cubin").read_bytes(), source.arch, place, matmuls=matmuls)
    return source.compiled(**found, **code)


def _triton(source: Lowered, place: Path, timeout_s: float) -> Compilation:
    (place / "kernel.ttir").write_bytes(source.bytecode)
    (place / "options.json").write_text(json.dumps(source.options))
    command = [sys.executable, "-I", "-B", "-m", "tilewright.compiler.tritoncompile", str(place), source.arch]
    started = time.perf_counter()
    status, said = _run(command, place, os.environ | {"TRITON_CACHE_DIR": str(place / "cache")}, timeout_s)
    found: dict[str, Any] = {"seconds": time.perf_counter() - started, "timed_out": status is None}
    found |= {stage: tidy(read_text(place / f"kernel.{stage}")[:TEXT_LIMIT]) for stage in ("ttir", "ttgir", "ptx")}
    if status is None:
        return source.compiled(_too_long("Triton", timeout_s), **found)
    if status:
        lines = said.splitlines() or [f"Triton's compiler ended with status {status}"]
        return source.compiled("\n".join([lines[-1], *lines[-ERROR_LINES:-1]]), **found)
    shared = int(json.loads((place / "made.json").read_text())["shared"])
    code = machine_code((place / "kernel.cubin").read_bytes(), source.arch, place, dynamic_shared=shared)
    held, error = code["resources"], ""
    if held.ctas_per_sm == 0:
        occupied = f"{held.shared_bytes} bytes of shared memory, {held.threads} threads of {held.registers} registers"
        error = f"out of resource: {held.limited_by}: no block of {occupied} fits on an SM of {source.arch}"
    return source.compiled(error, **found, **code)


def _run(command: list[str], place: Path, environment: Mapping[str, str], timeout_s: float) -> tuple[int | None, str]:
    """A compiler's status, None where time ran out, and what it said. The ptxas below it ends with it."""
    with (place / "said").open("w+b") as output:
        process = subprocess.Popen(
            command, env={**environment, "TMPDIR": str(place)}, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            if process.poll() is None:  # a confined worker can make no group, by which all could be ended
                below = psutil.Process(process.pid).children(recursive=True)
                process.kill()
                for one in below:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        one.kill()
                process.wait()
        output.seek(0)
        return process.returncode, output.read(1_000_000).decode("utf-8", "replace").strip()


def _too_long(compiler: str, timeout_s: float) -> str:
    return f"COMPILE TIMEOUT: {compiler} did not finish within {timeout_s:g} s; use smaller tiles"


def _tile_ir(bytecode: Path, timeout_s: float) -> str:
    tool = find_tool("tileirdisasm")
    if tool is None:
        return "(no Tile IR text: tileirdisasm comes with nvidia-cuda-tileiras from 13.4)"
    try:
        done = subprocess.run([tool, str(bytecode)], capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return f"(no Tile IR text: tileirdisasm did not finish within {timeout_s:g} s)"
    return tidy(done.stdout) if done.returncode == 0 else f"(no Tile IR text: {done.stderr.strip()[:500]})"


def _complaint(errors: str) -> str:
    """The compiler's errors, with the source line where it names one."""

    def place(match: re.Match[str]) -> str:
        return f"{Path(match['file']).name}:{match['line']}: " if match["file"] else ""

    return REPORTED_ERROR.sub(place, errors)
