"""Bytes of parameters that nobody sets: what captures agree in beside them, and whether two programs are one but for
them."""

from __future__ import annotations

from tests.unit.programs.made import OUT, fill, program
from tilewright.programs.agreement import Agreed, Unset, agreed, seem_the_same
from tilewright.programs.identity import identity
from tilewright.programs.model import Kernel, Program


def capture(number: int, left: int) -> Program:
    """A kernel whose third parameter is a number of four bytes, then four that hold what lay there."""
    node = fill(OUT, 1)
    data = number.to_bytes(4, "little") + left.to_bytes(4, "little")
    return program([node.model_copy(update={"parameters": (*node.parameters, data)})])


def captured(number: int, left: list[int]) -> Agreed:
    """What captures agree in: the first, the second, and the further ones."""
    made = [capture(number, one) for one in left]
    return agreed(*made[:2], lambda _: made.pop(2))


HALF: Unset = frozenset({(0, 2, 4)})


def test_what_chance_left_in_two_programs_makes_them_no_others() -> None:
    one, other = captured(7, [0x4401, 0x4502, 0x4503]), captured(7, [0x4601, 0x4602, 0x4603])
    assert identity(one.program) != identity(other.program)  # in each, a byte was the same in all captures
    assert one.unset == other.unset == HALF
    assert seem_the_same(one.program, other.program, one.unset | other.unset)
    at_once = captured(7, [0x4601, 0x4601])
    assert at_once.unset == frozenset()
    assert seem_the_same(one.program, at_once.program, one.unset | at_once.unset)


def test_what_somebody_sets_counts() -> None:
    one, other = captured(7, [0x4401, 0x4502, 0x4503]), captured(8, [0x4601, 0x4602, 0x4603])
    assert one.unset == other.unset
    assert not seem_the_same(one.program, other.program, one.unset | other.unset)
    assert not seem_the_same(capture(7, 1), capture(7, 2), frozenset())


def test_what_nobody_sets_in_nodes_that_a_program_lacks_changes_nothing() -> None:
    one = captured(7, [0x4401, 0x4502, 0x4503])
    assert not seem_the_same(one.program, program([fill(OUT, 1)]), one.unset | {(9, 0, 0)})


def test_what_is_unset_follows_its_node() -> None:
    """Two launches side by side, whose order what nobody sets decides."""

    def made(left: int, number: int) -> Program:
        return program([fill(OUT, left), fill(OUT, number)], edges=[])

    def agree(number: int) -> Agreed:
        captures = [made(0x10, number), made(0x11, number), made(0x12, number)]
        return agreed(*captures[:2], lambda _: captures.pop(2))

    one, other = agree(5), agree(6)
    assert [node.parameters[1][0] for node in one.program.layout.nodes if isinstance(node, Kernel)] == [0, 5]
    assert not seem_the_same(one.program, other.program, one.unset | other.unset)
    assert seem_the_same(one.program, agree(5).program, one.unset)
