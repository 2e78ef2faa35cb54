"""Bytes of parameters that nobody sets: what captures agree in beside them."""

from __future__ import annotations

import pytest

from tests.unit.programs.made import OUT, fill, program
from tilewright.programs.agreement import agreed
from tilewright.programs.model import Kernel, Program, ProgramError


def capture(number: int, left: int) -> Program:
    """A kernel whose third parameter is a number of four bytes, then four that hold what lay there."""
    node = fill(OUT, 1)
    data = number.to_bytes(4, "little") + left.to_bytes(4, "little")
    return program([node.model_copy(update={"parameters": (*node.parameters, data)})])


def captured(number: int, first: int, second: int) -> Agreed:
    """What two captures agree in."""
    found = agreed(capture(number, first), capture(number, second))
    assert found is not None
    return found


def parameters(found: Program) -> list[str]:
    """The last parameter of each kernel."""
    return [node.parameters[-1].hex() for node in found.layout.nodes if isinstance(node, Kernel)]


def test_bytes_that_differ_are_zero() -> None:
    (node,) = captured(7, 0x4401, 0x4402).program.layout.nodes
    assert isinstance(node, Kernel)
    assert node.parameters[2].hex() == "07000000" + "00440000"
    assert captured(7, 0x4401, 0x4401) == Agreed(capture(7, 0x4401))


def test_what_chance_left_in_two_programs_makes_them_no_others() -> None:
    one, other = captured(7, 0x4401, 0x4402), captured(7, 0x4601, 0x4602)
    assert identity(one.program) != identity(other.program)  # in each, a byte was the same in both captures
    assert one.unset == other.unset == HALF
    assert seem_the_same(one.program, other.program, one.unset | other.unset)
    at_once = captured(7, 0x4601, 0x4601)
    assert at_once.unset == frozenset()
    assert seem_the_same(one.program, at_once.program, one.unset | at_once.unset)


def test_what_somebody_sets_counts() -> None:
    one, other = captured(7, 0x4401, 0x4402), captured(8, 0x4601, 0x4602)
    assert one.unset == other.unset
    assert not seem_the_same(one.program, other.program, one.unset | other.unset)
    assert not seem_the_same(capture(7, 1), capture(7, 2), frozenset())


def test_planned_addresses_grids_and_launches_count() -> None:
    assert agreed(program([fill(OUT, 1)]), program([fill(OUT + 256, 1)])) is None
    assert agreed(program([fill(OUT, 1)]), program([fill(OUT, 1), fill(OUT, 1)])) is None
    wide = fill(OUT, 1).model_copy(update={"grid": (2, 1, 1)})
    assert agreed(program([fill(OUT, 1)]), program([wide])) is None


def test_what_nobody_sets_in_nodes_that_a_program_lacks_changes_nothing() -> None:
    one = captured(7, 0x4401, 0x4402)
    assert not seem_the_same(one.program, program([fill(OUT, 1)]), one.unset | {(9, 0, 0)})


def test_the_first_capture_may_have_tuned() -> None:
    tuned = program([fill(OUT, 1), fill(OUT, 2)])
    assert agree(tuned, capture(7, 1), capture(7, 1)) == capture(7, 1)


def test_nodes_are_put_in_order_without_what_nobody_sets() -> None:
    """Two launches side by side, whose order what nobody sets decides."""

    def made(left: int, number: int) -> Program:
        return program([fill(OUT, left), fill(OUT, number)], edges=[])

    def agree(number: int) -> Agreed:
        found = agreed(made(0x10, number), made(0x11, number))
        assert found is not None
        return found

    one, other = agree(5), agree(6)
    assert [node.parameters[1][0] for node in one.program.layout.nodes if isinstance(node, Kernel)] == [0, 5]
    assert not seem_the_same(one.program, other.program, one.unset | other.unset)
    assert seem_the_same(one.program, agree(5).program, one.unset)
