"""What makes two programs the same, and how they are shown."""

from __future__ import annotations

from tests.unit.programs.made import OUT, VECTOR, X, clear, copied, cubin, fill, program
from tilewright.programs.identity import differences, identity
from tilewright.programs.images import code_digest
from tilewright.programs.model import Program, Tensor, digest_of
from tilewright.programs.text import shown

ONE = program([fill(OUT, 1), clear(), copied()])


def test_what_is_held_and_the_label_are_not_compared() -> None:
    other = program([fill(OUT, 1), clear(), copied()], held=b"\x02" * 64)
    assert other.held != ONE.held
    assert identity(other) == identity(ONE)
    assert identity(Program(ONE.layout, ONE.images, ONE.held, label="other")) == identity(ONE)
    assert differences(ONE, other) == []


def test_each_difference_is_named() -> None:
    image = cubin("fill", "sm_80")
    pairs = {
        "node 0: parameter 1: 01000000 / 02000000": program([fill(OUT, 2), clear(), copied()]),
        f"node 0: fill: other machine code ({code_digest(cubin())[:12]} / {code_digest(image)[:12]})": Program(
            program([fill(OUT, 1, image), clear(), copied()]).layout, {digest_of(image): image}
        ),
        "node 0: cluster 0x0x0 / 1x1x1": program([fill(OUT, 1, cluster=(1, 1, 1)), clear(), copied()]),
        "node 1: width 256 / 255": program([fill(OUT, 1), clear(width=255), copied()]),
        "3 nodes / 2 nodes": program([fill(OUT, 1), clear()]),
        "node 1: a memset / a copy": program([fill(OUT, 1), copied(), clear()]),
        "2 edges / 1 edges, which lead elsewhere": program([fill(OUT, 1), clear(), copied()], [(0, 1)]),
        "a block of memory: held, 64 bytes at 0x200000200000 / held, 63 bytes at 0x200000200000": program(
            [fill(OUT, 1), clear(), copied()], held=bytes(63)
        ),
        "the outputs lie elsewhere, or have another shape, strides or dtype": Program(
            ONE.layout.model_copy(update={"outputs": (Tensor(name="0", at=X, spec=VECTOR),)}), ONE.images, ONE.held
        ),
    }
    for line, other in pairs.items():
        assert identity(other) != identity(ONE)
        assert line in differences(ONE, other), differences(ONE, other)
    many = program([fill(OUT, number) for number in range(1, 40)])
    assert (
        differences(many, program([fill(OUT, number) for number in range(101, 140)]))[-1] == "and 31 more differences"
    )


def test_a_program_is_shown() -> None:
    text = shown(program([fill(OUT, 1, cluster=(1, 1, 1)), clear(), copied()]))
    assert "captured from kernel:fill N=256" in text
    assert "3 nodes, 2 edges, 1 image of " in text
    assert "kernel  fill  grid 1x1x1, block 32x1x1, cluster 1x1x1" in text
    assert "    1  memset  256 x 4 bytes at 0x200000400000 to 0x0  after 0" in text
    assert "    2  copy    1.0 KiB from 0x200000000000 to 0x200000400000  after 1" in text
    assert "input   x: float32[256] at 0x200000000000" in text
    assert "held    64 bytes at 0x200000200000" in text
