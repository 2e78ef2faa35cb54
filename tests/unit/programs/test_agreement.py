"""Bytes of parameters that nobody sets: what captures agree in beside them."""

from __future__ import annotations

from tests.unit.programs.made import OUT, fill, program
from tilewright.programs.agreement import agreed
from tilewright.programs.model import Kernel, Program


def capture(number: int, left: int) -> Program:
    """A kernel whose third parameter is a number of four bytes, then four that hold what lay there."""
    node = fill(OUT, 1)
    data = number.to_bytes(4, "little") + left.to_bytes(4, "little")
    return program([node.model_copy(update={"parameters": (*node.parameters, data)})])


def parameters(captured: Program | None) -> list[str]:
    """The last parameter of each kernel."""
    assert captured is not None
    return [node.parameters[-1].hex() for node in captured.layout.nodes if isinstance(node, Kernel)]


def test_bytes_that_differ_are_zero() -> None:
    assert parameters(agreed(capture(7, 0x4401), capture(7, 0x4402))) == ["0700000000440000"]
    assert agreed(capture(7, 0x4401), capture(7, 0x4401)) == capture(7, 0x4401)


def test_planned_addresses_grids_and_launches_count() -> None:
    assert agreed(program([fill(OUT, 1)]), program([fill(OUT + 256, 1)])) is None
    assert agreed(program([fill(OUT, 1)]), program([fill(OUT, 1), fill(OUT, 1)])) is None
    wide = fill(OUT, 1).model_copy(update={"grid": (2, 1, 1)})
    assert agreed(program([fill(OUT, 1)]), program([wide])) is None


def test_nodes_are_put_in_order_without_what_nobody_sets() -> None:
    """Two launches side by side, whose order what nobody sets decides."""
    captures = [program([fill(OUT, left), fill(OUT, 5)], edges=[]) for left in (0x10, 0x11)]
    assert parameters(agreed(*captures)) == ["00000000", "05000000"]
