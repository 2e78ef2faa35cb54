"""The side of the compiler that needs the kernel as Python: cuTile's own front end. Needs no GPU."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from cuda.tile._compile import compile_tile
from cuda.tile._exception import TileError

from tilewright.compiler.compilation import Lowered

HINTS = ("num_ctas", "occupancy", "num_worker_warps", "opt_level")


def hints_of(kernel: Any, arch: str) -> dict[str, int]:
    """The hints that `kernel` gives the compiler for `arch`; those it leaves open are left out."""
    by_target = kernel._compiler_options.hints_by_target()
    found = by_target.get("default", {}) | by_target.get(arch, {})
    return {name: found[name] for name in HINTS if found.get(name) is not None}


def lower(kernel: Any, signature: Any, arch: str, root: Path | None = None) -> Lowered:
    """`kernel` under `signature` as tileiras takes it for `arch`, or with the front end's complaint as its `error`.

    Source files below `root` are named by their place in it, so that the same source in another folder is the same.
    """
    name = str(kernel._pyfunc.__name__)
    options = kernel._compiler_options
    known = Lowered(name, arch, options.opt_level_for_target(arch), signature.symbol or "", hints_of(kernel, arch))
    try:
        made = compile_tile(
            kernel._annotated_function,
            [signature],
            sm_arch=arch,
            compiler_options=options,
            return_final_ir=True,
            return_bytecode=True,
            return_cubin=False,
        )
    except TileError as error:
        return dataclasses.replace(known, error=str(error).replace(f"{root}/", "") if root else str(error))
    assert made.bytecode is not None and made.final_ir is not None
    bytecode = bytes(made.bytecode)
    if root is not None:
        folder = str(root).encode()
        bytecode = bytecode.replace(folder, b"/" * len(folder))  # of the same length, and still a path
    return dataclasses.replace(known, cutile_ir=str(made.final_ir[0]), bytecode=bytecode)
