"""Programs made by hand from hostile.cu: what device code can try against the replayer."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

from tilewright.compiler.tools import find_tool
from tilewright.gpu.addresses import BASE, rounded
from tilewright.programs.model import Block, Kernel, Layout, Program, Tensor, digest_of
from tilewright.replay.build import compiled
from tilewright.wire.tensors import TensorSpec

SOURCE = Path(__file__).with_name("hostile.cu")
PTX = SOURCE.with_suffix(".ptx")


@lru_cache
def cubin(arch: str) -> bytes:
    """The kernels for an architecture, `sm_90` say."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "hostile.cubin")
        subprocess.run([find_tool("ptxas") or "ptxas", "-arch", arch, PTX, "-o", made], check=True)
        return made.read_bytes()


def program(kernel: str, arch: str, words: int, *more: tuple[int, int], grid: int = 528) -> Program:
    """A program that launches one kernel on `words` words of 4 bytes; `more`: value and bytes of what it takes beside
    input, output and count."""
    size = 4 * words
    x, y = BASE, BASE + rounded(size)
    values = [(x, 8), (y, 8), (size // 16, 8), *more]
    node = Kernel(
        image=digest_of(cubin(arch)),
        symbol=kernel,
        grid=(grid, 1, 1),
        block=(256, 1, 1),
        shared=0,
        parameters=tuple(value.to_bytes(width, "little") for value, width in values),
    )
    spec = TensorSpec(dtype="int32", shape=[words], stride=[1])
    layout = Layout(
        arch=arch,
        nodes=(node,),
        edges=(),
        blocks=(Block(at=x, size=size, role="input"), Block(at=y, size=size, role="fresh")),
        inputs=(Tensor(name="x", at=x, spec=spec),),
        outputs=(Tensor(name="0", at=y, spec=spec),),
    )
    return Program(layout, {node.image: cubin(arch)}, label=f"hostile:{kernel}")


if __name__ == "__main__":
    PTX.write_text(compiled(SOURCE))
    sys.exit()
