"""What the clock resolves on this machine: programs of ours against themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tilewright.gpu.addresses import BASE, GRAIN
from tilewright.programs.model import Block, Copy, Layout, Program, Tensor, checked
from tilewright.referee.compare import compare
from tilewright.referee.replayer import Replayer
from tilewright.wire.tensors import TensorSpec

COPIED_MIB = (1, 32, 256)
"""Of a short call, of one that a rest does not follow, and of one that it does."""


def copy_program(arch: str, size: int) -> Program:
    """A program that copies its input of `size` bytes."""
    spec = TensorSpec(dtype="uint8", shape=[size], stride=[1])
    source, to = BASE, BASE + -(-size // GRAIN) * GRAIN
    layout = Layout(
        arch=arch,
        nodes=(Copy(to=to, source=source, width=size),),
        edges=(),
        blocks=(Block(at=source, size=size, role="input"), Block(at=to, size=size, role="fresh")),
        inputs=(Tensor(name="x", at=source, spec=spec),),
        outputs=(Tensor(name="out", at=to, spec=spec),),
    )
    return checked(Program(layout, {}, label=f"a copy of {size >> 20} MiB"))


def resolved(replayer: Replayer) -> Iterator[str]:
    """What copies of several sizes say of themselves, in words. Raises `Fault`, `ReplayerGone`."""
    arch = replayer.start().arch
    for mib in COPIED_MIB:
        program = copy_program(arch, mib << 20)
        found = compare(replayer, program, program, measure_same=True).measured
        assert found is not None
        half = math.log(found.high / found.low) / 2
        text = f"{program.label}, {found.first_us:.1f} us: resolves {100 * half:.2g}%, in {found.rounds} rounds"
        said = [] if found.steady else ["clock not steady: another process may use the GPU"]
        if found.low > 1 or found.high < 1:
            said.append(f"it differs from itself by {100 * (found.speedup - 1):+.2f}%: measure again")
        yield "; ".join([text, *said])
