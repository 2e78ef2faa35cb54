"""What the kernels of a stored device program occupy, read from its images. No image is run or disassembled."""

from __future__ import annotations

import io
import math
from functools import lru_cache
from pathlib import Path

from tilewright.evaluation.results import CaseTiming, KernelUse
from tilewright.programs.format import bare_file, bared, decoded, program_file
from tilewright.programs.model import Kernel, Program


def kernels_of(timing: CaseTiming, folder: Path) -> list[KernelUse]:
    """What the kernels of a timed case occupy, as far as that is known. `folder` holds the session's programs."""
    if timing.program is None:
        return timing.kernels
    places = [place(folder, timing.program.sha256) for place in (program_file, bare_file)]
    return next((_kernels_in(path) for path in places if path.is_file()), [])


@lru_cache(maxsize=256)
def _kernels_in(path: Path) -> list[KernelUse]:
    """Of a file that a candidate's process made: whatever it holds, it costs no more than these figures."""
    try:
        program = _read(path)
        uses = {node.symbol: _use(program, node) for node in program.layout.nodes if isinstance(node, Kernel)}
    except Exception:
        return []
    return [use for use in uses.values() if use is not None]


def _read(path: Path) -> Program:
    """A program without its held contents, which may be large."""
    with path.open("rb") as file:
        raw = bared(file) if not path.name.endswith(".bare.program") else path.read_bytes()
    return decoded(path.read_bytes()) if raw is None else decoded(raw, bare=True)


def _use(program: Program, node: Kernel) -> KernelUse | None:
    """None for a kernel of a library, whose image holds others, too."""
    from elftools.elf.elffile import ELFFile

    from tilewright.compiler.cubin import occupancy, resources
    from tilewright.gpu.specs import SM_LIMITS

    image, arch = program.images[node.image], program.layout.arch.rstrip("af")
    if sum(section.name.startswith(".text.") for section in ELFFile(io.BytesIO(image)).iter_sections()) != 1:
        return None
    cubin, threads, limits = resources(image, [], arch, node.shared), math.prod(node.block), SM_LIMITS.get(arch)
    ctas, limited_by = occupancy(cubin.registers, cubin.shared_bytes, threads, limits) if limits else (None, "")
    return KernelUse(
        name=node.symbol,
        registers=cubin.registers,
        stack_bytes=cubin.stack_bytes,
        shared_bytes=cubin.shared_bytes,
        warps_per_sm=None if ctas is None else ctas * threads // 32,
        max_warps_per_sm=limits.threads // 32 if limits else 0,
        limited_by=limited_by,
    )
