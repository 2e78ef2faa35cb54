"""What the kernels of a stored device program occupy, read from its images. No image is run or disassembled."""

from __future__ import annotations

import io
import math
from functools import lru_cache
from pathlib import Path

from tilewright.evaluation.results import CaseTiming, KernelUse
from tilewright.programs.format import layout_and_images, program_file
from tilewright.programs.model import Kernel
from tilewright.text import own_name


def kernels_of(timing: CaseTiming, folder: Path) -> list[KernelUse]:
    """What the kernels of a timed case occupy, as far as that is known. `folder` holds the session's programs."""
    if timing.program is None:
        return timing.kernels
    path = program_file(folder, timing.program.sha256)
    return _kernels_in(path) if path.is_file() else []


@lru_cache(maxsize=256)
def _kernels_in(path: Path) -> list[KernelUse]:
    """Of a file that a candidate's process made: whatever it holds, it costs no more than these figures."""
    try:
        layout, images = layout_and_images(path)
        kernels = [node for node in layout.nodes if isinstance(node, Kernel)]
        uses = {node.symbol: _use(node, images[node.image], layout.arch.rstrip("af")) for node in kernels}
    except Exception:
        return []
    return [use for use in uses.values() if use is not None]


def _use(node: Kernel, image: bytes, arch: str) -> KernelUse | None:
    """None for a kernel of a library, whose image holds others, too."""
    from elftools.elf.elffile import ELFFile

    from tilewright.compiler.cubin import resources

    if sum(section.name.startswith(".text.") for section in ELFFile(io.BytesIO(image)).iter_sections()) != 1:
        return None
    threads = math.prod(node.block)  # cuTile launches blocks of 1, and its images say how many threads they are
    return KernelUse.of(own_name(node.symbol), resources(image, [], arch, node.shared, threads if threads > 1 else 0))
