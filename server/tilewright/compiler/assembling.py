"""From Tile IR bytecode to machine code and all that can be read from it. Runs tileiras, and no Python of a kernel's.
Triton's kernels are handed on to `tritonback`.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tilewright.compiler import sass, tritonback
from tilewright.compiler.compilation import Compilation
from tilewright.compiler.cubin import disassemble, resources
from tilewright.compiler.remarks import parse_remarks
from tilewright.compiler.texts import TEXT_LIMIT, read_text, tidy
from tilewright.compiler.tools import find_tool, need_tool

ERROR_LIMIT = 2000
REPORTED_ERROR = re.compile(r'^(?:loc\([^)]*?"?(?P<file>[^":]+)"?:(?P<line>\d+):\d+[^)]*\): )?error: ', re.MULTILINE)


@dataclass(frozen=True)
class Lowered:
    """A kernel as the front end hands it on, for one architecture. `hints` are those that apply to it.

    `bytecode` is cuTile's for tileiras, or the text of the TTIR where `frontend` is triton; `options` are Triton's.
    """

    kernel: str
    arch: str
    opt_level: int
    symbol: str = ""
    hints: dict[str, int] = field(default_factory=dict, hash=False)
    cutile_ir: str = ""
    bytecode: bytes = b""
    error: str = ""
    frontend: Literal["cutile", "triton"] = "cutile"
    options: dict[str, int | bool] = field(default_factory=dict, hash=False)

    def failed(self, error: str, **rest: object) -> Compilation:
        """What is known of this kernel when it could not be compiled."""
        known = {"kernel": self.kernel, "arch": self.arch, "symbol": self.symbol, "hints": self.hints}
        known["frontend"] = self.frontend
        return Compilation.model_validate(
            known | {"cutile_ir": self.cutile_ir[:TEXT_LIMIT], "error": error[:ERROR_LIMIT]} | rest
        )


def assemble(source: Lowered, timeout_s: float, folder: Path | None = None) -> Compilation:
    """Compile `source`, in `timeout_s` seconds at most; `folder` is for temporary files.

    A failure is a `Compilation` with its `error`. Raises `MissingTool` where tileiras or nvdisasm is not there.
    """
    if source.error:
        return source.failed(source.error)
    if source.frontend == "triton":
        return tritonback.assemble(source, timeout_s, folder)
    with tempfile.TemporaryDirectory(prefix="compile-", dir=folder) as name:
        place = Path(name)
        (place / "kernel.tileirbc").write_bytes(source.bytecode)
        tile_ir = _tile_ir(place / "kernel.tileirbc", timeout_s)
        started = time.perf_counter()
        error, timed_out = _run_tileiras(source, place, timeout_s)
        seconds = time.perf_counter() - started
        remarks = parse_remarks(read_text(place / "remarks.yaml"))
        if error:
            return source.failed(error, timed_out=timed_out, tile_ir=tile_ir, remarks=remarks, seconds=seconds)
        cubin = (place / "kernel.cubin").read_bytes()
        text = disassemble(cubin, place)
        listed = list(sass.instructions(text))
        return Compilation(
            kernel=source.kernel,
            arch=source.arch,
            symbol=source.symbol,
            hints=source.hints,
            cutile_ir=source.cutile_ir[:TEXT_LIMIT],
            tile_ir=tile_ir,
            sass=tidy(text),
            resources=resources(cubin, listed, source.arch),
            mix=sass.mix_by_line(listed, [(one.file, one.line) for one in remarks if one.category == "tensor-core"]),
            remarks=remarks,
            seconds=seconds,
        )


def _run_tileiras(source: Lowered, place: Path, timeout_s: float) -> tuple[str, bool]:
    """Why there is no cubin, or nothing; and whether it was time that ran out."""
    command = [
        need_tool("tileiras"), str(place / "kernel.tileirbc"), "-o", str(place / "kernel.cubin"),
        "--gpu-name", source.arch, f"-O{source.opt_level}", "--lineinfo",
        "--remarks=all", "--remark-format=yaml", f"--remarks-output-file={place / 'remarks.yaml'}",
    ]  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if name not in ("CUDA_HOME", "CUDA_PATH")}
    with (place / "errors").open("w+b") as errors:
        process = subprocess.Popen(
            command, env=environment | {"TMPDIR": str(place)}, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
            start_new_session=True,
        )  # fmt: skip
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return f"COMPILE TIMEOUT: tileiras did not finish within {timeout_s:g} s; use smaller tiles", True
        finally:
            _end(process)
        if process.returncode == 0:
            return "", False
        errors.seek(0)
        text = errors.read(1_000_000).decode("utf-8", "replace")
        return _complaint(text) or f"tileiras ended with status {process.returncode}", False


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the compiler and the ptxas below it, where they still run."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


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

    return REPORTED_ERROR.sub(place, errors.strip())
