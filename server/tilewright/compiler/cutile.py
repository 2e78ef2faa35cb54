"""One cuTile kernel, compiled for one architecture: its IR, its Tile IR and its resources. Needs no GPU."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from typing import Any

import cuda.tile as ct
from cuda.tile._compile import _bytecode_to_mlir_text, compile_tile
from cuda.tile._exception import CompilerTimeoutError, TileError

from tilewright.compiler.cubin import resources
from tilewright.compiler.resources import Resources


@dataclass(frozen=True)
class Compilation:
    """What the compiler made of a kernel. `error` is its first complaint, with what it produced before."""

    kernel: str
    arch: str
    cutile_ir: str = ""
    tile_ir: str = ""
    resources: Resources | None = None
    seconds: float = 0.0
    error: str = ""
    timed_out: bool = False


def compile_kernel(
    kernel: Any, signature: Any, arch: str, timeout_s: float = 60.0, with_text: bool = False
) -> Compilation:
    """Compile `kernel` under `signature` for `arch`, with the texts of both IRs where `with_text`."""
    name = str(kernel._pyfunc.__name__)
    started = time.perf_counter()
    cutile_ir = tile_ir = ""
    try:
        with ct.compiler_timeout(timeout_s):
            if with_text:
                early = compile_tile(
                    kernel._annotated_function,
                    [signature],
                    sm_arch=arch,
                    compiler_options=kernel._compiler_options,
                    return_final_ir=True,
                    return_bytecode=True,
                    return_cubin=False,
                )
                cutile_ir = str(early.final_ir[0])
                tile_ir = _tile_ir_text(early.bytecode, timeout_s)
            made = compile_tile(
                kernel._annotated_function, [signature], sm_arch=arch, compiler_options=kernel._compiler_options
            )
    except CompilerTimeoutError:
        seconds = time.perf_counter() - started
        error = f"the compiler did not finish within {timeout_s:.0f} s; use smaller tiles"
        return Compilation(name, arch, cutile_ir, tile_ir, None, seconds, error, timed_out=True)
    except TileError as error:
        return Compilation(name, arch, cutile_ir, tile_ir, None, time.perf_counter() - started, str(error)[:2000])
    seconds = time.perf_counter() - started
    return Compilation(name, arch, cutile_ir, tile_ir, resources(made.cubin, arch), seconds)


def _tile_ir_text(bytecode: bytes, timeout_s: float) -> str:
    try:
        return str(_bytecode_to_mlir_text(bytecode, timeout_sec=timeout_s))
    except (FileNotFoundError, subprocess.SubprocessError, TileError) as error:
        return f"(no Tile IR text: {error})"
