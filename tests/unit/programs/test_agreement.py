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


def agree(first: Program, second: Program, *more: Program) -> Program:
    """What captures agree in: the first, the second, and the further ones."""
    further = [*more]
    return agreed(first, second, lambda _: further.pop(0))


def parameters(found: Program) -> list[str]:
    """The last parameter of each kernel."""
    return [node.parameters[-1].hex() for node in found.layout.nodes if isinstance(node, Kernel)]


def test_equal_captures_need_no_further_one() -> None:
    assert agree(capture(7, 1), capture(7, 1)) == capture(7, 1)


def test_bytes_that_differ_on_equal_values_are_zero() -> None:
    assert parameters(agree(capture(7, 0x4401), capture(7, 0x4502), capture(7, 0x4603))) == ["0700000000000000"]
    # the first two further captures show nothing, by chance
    captures = [capture(7, left) for left in (1, 2, 1, 2, 3)]
    assert parameters(agree(*captures)) == ["0700000000000000"]


def test_bytes_that_differ_with_the_values_are_an_error() -> None:
    captures = [capture(7 + number % 2, 0) for number in range(6)]
    with pytest.raises(ProgramError, match="node 0: parameter 2: 0700000000000000 / 0800000000000000"):
        agree(*captures)


def test_the_first_capture_may_have_tuned() -> None:
    tuned = program([fill(OUT, 1), fill(OUT, 2)])
    assert agree(tuned, capture(7, 1), capture(7, 1)) == capture(7, 1)


def test_nodes_are_put_in_order_without_what_nobody_sets() -> None:
    """Two launches side by side, whose order what nobody sets decides."""
    captures = [program([fill(OUT, left), fill(OUT, 5)], edges=[]) for left in (0x10, 0x11, 0x12)]
    assert parameters(agree(*captures)) == ["00000000", "05000000"]
