"""What is learned from the programs of a profile's cases: their kernels, recorded while they are replayed in a confined
process of its own, and the machine code of a kernel of each."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from tilewright.compiler.compilation import Compilation
from tilewright.profile.kernels import CallKernels, kernels_of
from tilewright.text import cut
from tilewright.wire.launches import KernelLaunch

WARM_UPS, CALLS = 3, 20
CALL_LIMIT_S = 20.0


class Recorded(NamedTuple):
    """What a call launches, None where nothing was recorded, and the kernel in it that takes longest."""

    call: CallKernels | None = None
    longest: KernelLaunch | None = None


def record_kernels(programs: Sequence[Path | str], own: Collection[str]) -> tuple[list[Recorded], str]:
    """The kernels of a call of each program, in their order, and why some were not recorded; a text says why there is
    no program. `own`: names of the candidate's kernels. Never raises for a program that cannot be replayed."""
    from tilewright.programs.draws import examples_of  # here, since the server starts without numpy
    from tilewright.programs.format import read
    from tilewright.programs.model import ProgramError
    from tilewright.referee.replayer import Fault, Replayer, ReplayerGone

    found: list[Recorded] = []
    why: dict[str, None] = {}
    with Replayer(records=True) as replayer:
        for path in programs:
            found.append(Recorded())
            try:
                if isinstance(path, str):
                    raise ProgramError(path)
                program = read(path)
                replayer.load([program], [examples_of(program)])
                answer, _ = replayer.alone(0, 0, WARM_UPS + CALLS, CALL_LIMIT_S)
                if not answer.launches:
                    raise ProgramError(answer.not_recorded)
            except (Fault, ReplayerGone, ProgramError, OSError) as error:
                why[str(error)] = None
                continue
            calls = answer.us[WARM_UPS:]
            us = [statistics.median(call[place] for call in calls) for place in range(len(answer.launches))]
            kernels = [
                (time, one) for time, one in zip(us, answer.launches, strict=True) if isinstance(one, KernelLaunch)
            ]
            longest = max(kernels, key=lambda pair: pair[0])[1] if kernels else None
            found[-1] = Recorded(kernels_of(answer.launches, calls, own), longest)
    return found, cut("; ".join(why), 200)


def read_code(
    programs: Sequence[Path | str], kernels: Sequence[KernelLaunch | None], triton: bool = False
) -> tuple[list[list[Compilation]], str]:
    """The machine code of a kernel of each program, in their order, where it can be told; and why it cannot. A text
    stands for a program that does not exist. `triton`: the candidate is written in it."""
    try:
        found = [
            [] if isinstance(path, str) or kernel is None else _read(path, kernel.symbol, triton)
            for path, kernel in zip(programs, kernels, strict=True)
        ]
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
