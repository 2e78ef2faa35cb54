"""The machine code of a kernel of each program: what it occupies, and what its instructions do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tilewright.compiler.compilation import Compilation
from tilewright.text import cut
from tilewright.wire.launches import KernelLaunch


def read_code(
    programs: Sequence[Path | str], kernels: Sequence[KernelLaunch | None], triton: bool = False
) -> tuple[list[list[Compilation]], str]:
    """The machine code of a kernel of each program, in their order, where it can be told; and why it cannot. A text
    stands for a program that does not exist. `triton`: the candidate is written in it."""
    made: dict[tuple[Path, str], list[Compilation]] = {}
    found: list[list[Compilation]] = []
    try:
        for path, kernel in zip(programs, kernels, strict=True):
            if isinstance(path, str) or kernel is None:
                found.append([])
                continue
            key = (path, kernel.symbol)
            if key not in made:
                made[key] = _read(*key, triton)
            found.append(made[key])
    except Exception as error:  # of a file that a candidate's process made
        return [[] for _ in programs], cut(f"{type(error).__name__}: {error}", 200)
    return found, ""


def _read(file: Path, symbol: str, triton: bool) -> list[Compilation]:
    """What is known of a kernel: nothing, if its image holds other kernels, too, since it is a library's."""
    from tilewright.compiler.cubin import machine_code
    from tilewright.programs.format import read
    from tilewright.programs.images import kernels
    from tilewright.programs.model import Kernel

    program = read(file)
    arch = program.layout.arch.rstrip("af")
    node = next(one for one in program.layout.nodes if isinstance(one, Kernel) and one.symbol == symbol)
    image = program.images[node.image]
    if kernels(image) != {symbol}:
        return []
    code = machine_code(image, arch, dynamic_shared=node.shared, threads=math.prod(node.block))
    frontend: Literal["triton", "cutile"] = "triton" if triton else "cutile"
    return [Compilation(kernel=symbol, symbol=symbol, arch=arch, frontend=frontend, **code)]
