"""Programs for tests: of real cubins, which need no GPU to be made, with made-up launches."""

from __future__ import annotations

import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from tilewright.compiler.tools import find_tool
from tilewright.gpu.addresses import BASE, GRAIN
from tilewright.programs.model import Block, Copy, Edge, Kernel, Layout, Memset, Program, Tensor, digest_of
from tilewright.programs.order import Graph, canonical
from tilewright.wire.tensors import TensorSpec

PTX = """
.version 8.8
.target {arch}
.address_size 64
.visible .entry {name}(.param .u64 p, .param .u32 n) {{
    .reg .u64 %a;
    .reg .u32 %n;
    ld.param.u64 %a, [p];
    ld.param.u32 %n, [n];
    st.global.u32 [%a], %n;
    ret;
}}
"""
X, W, OUT = BASE, BASE + GRAIN, BASE + 2 * GRAIN
VECTOR = TensorSpec(dtype="float32", shape=[256], stride=[1])


@lru_cache
def cubin(name: str = "fill", arch: str = "sm_90") -> bytes:
    """A kernel that stores a number at an address."""
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "k.ptx"), Path(folder, "k.cubin")
        source.write_text(PTX.format(name=name, arch=arch))
        subprocess.run([find_tool("ptxas") or "ptxas", "-arch", arch, source, "-o", made], check=True)
        return made.read_bytes()


def fill(at: int, number: int = 0, image: bytes | None = None, **more: Any) -> Kernel:
    """A launch of it."""
    return Kernel(
        image=digest_of(cubin() if image is None else image),
        symbol="fill",
        grid=(1, 1, 1),
        block=(32, 1, 1),
        shared=0,
        parameters=(at.to_bytes(8, "little"), number.to_bytes(4, "little")),
        **more,
    )


def clear(at: int = OUT, width: int = 256) -> Memset:
    return Memset(at=at, value=0, element=4, width=width)


def copied(to: int = OUT, source: int = X, width: int = 1024) -> Copy:
    return Copy(to=to, source=source, width=width)


def program(
    nodes: list[Kernel | Memset | Copy | None], edges: list[tuple[int, int]] | None = None, held: bytes = b"\x01" * 64
) -> Program:
    """A program of these nodes on an input, a held block and an output; without edges each waits for the one before."""
    chain = [(number, number + 1) for number in range(len(nodes) - 1)]
    arrows = [Edge(before=a, after=b) for a, b in (chain if edges is None else edges)]
    ordered, kept = canonical(Graph(nodes, arrows))
    images = {digest_of(cubin()): cubin()} if any(isinstance(node, Kernel) for node in ordered) else {}
    layout = Layout(
        arch="sm_90",
        nodes=ordered,
        edges=kept,
        blocks=(
            Block(at=X, size=1024, role="input"),
            Block(at=W, size=len(held), role="held"),
            Block(at=OUT, size=1024, role="fresh"),
        ),
        inputs=(Tensor(name="x", at=X, spec=VECTOR),),
        outputs=(Tensor(name="0", at=OUT, spec=VECTOR),),
    )
    return Program(layout, images, {W: held}, {"x": bytes(range(256)) * 4}, (), "kernel:fill N=256")
