"""The machine code of a kernel of each program: what it occupies, and what its instructions do.

The images come from a candidate's process. So a process that may read the programs and write to its own folder alone
takes them apart: `python -I -m tilewright.profile.code FILE SYMBOL ...`.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tilewright.compiler.compilation import Compilation
from tilewright.profile.tool import run_tool
from tilewright.text import cut
from tilewright.wire.launches import KernelLaunch

LIMIT_S = 60.0
ANSWER = "code"
"""The file with a `Compilation` in each line."""


async def read_code(
    programs: Sequence[Path | str], kernels: Sequence[KernelLaunch | None], triton: bool = False
) -> tuple[list[list[Compilation]], str]:
    """The machine code of a kernel of each program, in their order, where it can be told; and why it cannot. A text
    stands for a program that does not exist. `triton`: the candidate is written in it."""
    pairs = [
        (str(path), kernel.symbol) if isinstance(path, Path) and kernel is not None else None
        for path, kernel in zip(programs, kernels, strict=True)
    ]
    asked = [*dict.fromkeys(pair for pair in pairs if pair is not None)]
    if not asked:
        return [[] for _ in pairs], ""
    module = [sys.executable, "-I", "-B", "-m", "tilewright.profile.code"]
    with tempfile.TemporaryDirectory(prefix="tilewright-code-") as folder:
        _, printed = await run_tool([*module, *(text for pair in asked for text in pair)], Path(folder), LIMIT_S)
        try:
            lines = (Path(folder) / ANSWER).read_text().splitlines()
            found = dict(zip(asked, map(Compilation.model_validate_json, lines), strict=True))
        except (OSError, ValueError):
            return [[] for _ in pairs], cut((printed.strip() or "it ended").splitlines()[-1], 200)
    language = {"frontend": "triton" if triton else "cutile"}
    made = [found[pair].model_copy(update=language) if pair is not None else None for pair in pairs]
    return [[one] if one is not None and one.resources is not None else [] for one in made], ""


def main(arguments: list[str]) -> None:
    """Write what is known of each kernel: nothing, if its image holds other kernels, too, since it is a library's."""
    from tilewright.compiler.cubin import disassemble, resources
    from tilewright.compiler.sass import instructions, mix_by_line
    from tilewright.isolation.confinement import confine
    from tilewright.programs.format import read
    from tilewright.programs.images import kernels
    from tilewright.programs.model import Kernel

    files = [Path(name) for name in arguments[::2]]
    confine(writable=[Path.cwd()], readable=[file.parent for file in files])
    lines = []
    for file, symbol in zip(files, arguments[1::2], strict=True):
        program = read(file)
        arch = program.layout.arch.rstrip("af")
        made = Compilation(kernel=symbol, symbol=symbol, arch=arch)
        node = next(one for one in program.layout.nodes if isinstance(one, Kernel) and one.symbol == symbol)
        image = program.images[node.image]
        if kernels(image) == {symbol}:
            listed = [*instructions(disassemble(image, Path.cwd()))]
            found = resources(image, listed, arch, node.shared, math.prod(node.block))
            made = made.model_copy(update={"resources": found, "mix": mix_by_line(listed)})
        lines.append(made.model_dump_json())
    Path(ANSWER).write_text("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
