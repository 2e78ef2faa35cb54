"""Bytes of structs that nobody sets: what captures agree in beside them."""

from __future__ import annotations

from typing import Any

from tests.unit.programs.made import OUT, fill, program
from tilewright.programs.agreement import agreed
from tilewright.programs.model import Kernel, Program


def launch(*parameters: bytes, at: int = OUT, **more: Any) -> Kernel:
    """A kernel with these parameters before its own."""
    node = fill(at, 1, **more)
    return node.model_copy(update={"parameters": (*parameters, *node.parameters)})


def struct(number: int, left: int) -> bytes:
    """A number of four bytes, four that hold what lay there, and an address."""
    return b"".join(value.to_bytes(size, "little") for value, size in ((number, 4), (left, 4), (OUT, 8)))


def capture(number: int, left: int) -> Program:
    return program([launch(struct(number, left))])


def parameters(captured: Program | None) -> list[str]:
    """The first parameter of each kernel."""
    assert captured is not None
    return [node.parameters[0].hex() for node in captured.layout.nodes if isinstance(node, Kernel)]


def test_bytes_of_a_struct_that_differ_are_zero() -> None:
    own = struct(7, 0x4400).hex()
    assert parameters(agreed(capture(7, 0x4401), capture(7, 0x4402))) == [own]
    assert agreed(capture(7, 0x4401), capture(7, 0x4401)) == capture(7, 0x4401)


def test_a_number_that_differs_makes_another_program() -> None:
    for size in (1, 2, 4, 8):
        assert agreed(*(program([launch(bytes([left]) * size)]) for left in (1, 2))) is None


def test_the_byte_of_an_empty_struct_is_no_number() -> None:
    one, other = (launch(bytes([left])).model_copy(update={"symbol": "_Z4fillPfj"}) for left in (1, 2))
    assert parameters(agreed(program([one]), program([other]))) == ["00"]


def test_planned_addresses_grids_and_launches_count() -> None:
    assert agreed(program([fill(OUT, 1)]), program([fill(OUT + 256, 1)])) is None
    assert agreed(program([fill(OUT, 1)]), program([fill(OUT, 1), fill(OUT, 1)])) is None
    wide = fill(OUT, 1).model_copy(update={"grid": (2, 1, 1)})
    assert agreed(program([fill(OUT, 1)]), program([wide])) is None


def test_nodes_are_paired_without_what_nobody_sets() -> None:
    """Two launches side by side, in whose order by all bytes the one that writes further is first in one capture."""
    captures = [
        program([launch(struct(7, left)), launch(struct(7, 3 - left), at=OUT + 256)], edges=[]) for left in (1, 2)
    ]
    assert parameters(agreed(*captures)) == [struct(7, 0).hex()] * 2


def test_nodes_that_nothing_else_tells_apart_are_not_paired() -> None:
    """Which of two launches side by side has which number in its struct; one behind the other it is plain."""
    for edges, agree in (([], False), ([(0, 1)], True)):
        captures = [program([launch(struct(5, left)), launch(struct(6, 1))], edges=edges) for left in (1, 2)]
        assert (agreed(*captures) is not None) is agree
