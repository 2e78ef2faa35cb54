"""What two captures of one call agree in.

Parameters of C++ kernels have bytes that nobody sets: padding, empty structs, and members that this call does without.
They hold what lay on the stack before, and differ from process to process. Further captures, with the values of the
first, tell them from bytes that depend on the values. In a program they are zero: should a kernel use them after all,
it is replayed with zeros and judged by what it gives then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.programs.identity import differences
from tilewright.programs.model import Kernel, Program, ProgramError
from tilewright.programs.order import AnyNode, Graph, canonical

WORD = 8
FURTHER = 2
"""Captures beyond the first two: of a byte that nobody sets, one of 256 pairs is equal by chance."""


def agreed(first: Program, second: Program, again: Callable[[], Program]) -> Program:
    """The one program that two captures on different values are. `again` gives a further capture on the first values:
    the first one may also have compiled and tuned, which the later ones find done. Raises `ProgramError`, which says
    where the captures differ."""
    found = differences(first, second, most=3)
    if not found:
        return first
    equal = [first]
    for _ in range(FURTHER):
        equal.append(again())
        for program in (equal[-1], equal[0]):
            one, other = (_without_unset(each, program, second, equal) for each in (program, second))
            found = differences(one, other, most=3)
            if not found:
                return one
    raise ProgramError("; ".join(found))


def _without_unset(program: Program, one: Program, other: Program, equal: Sequence[Program]) -> Program:
    """The program with zeros where `one` and `other` differ, in words in which those differ that have equal values."""
    count = len(program.layout.nodes)
    columns = [captured.layout.nodes for captured in (one, other, *equal) if len(captured.layout.nodes) == count]
    nodes: list[AnyNode] = []
    for place, node in enumerate(program.layout.nodes):
        seen = [each for column in columns if isinstance(each := column[place], Kernel)]
        if isinstance(node, Kernel) and len(seen) == len(columns) == len(equal) + 2:
            values = zip(*(each.parameters for each in seen), strict=False)
            kept = tuple(
                _set_bytes(own, a, b, same) for own, (a, b, *same) in zip(node.parameters, values, strict=False)
            )
            if len(kept) == len(node.parameters):
                node = node.model_copy(update={"parameters": kept})
        nodes.append(node)
    ordered, edges = canonical(Graph(nodes, program.layout.edges))
    layout = program.layout.model_copy(update={"nodes": ordered, "edges": edges})
    return Program(layout, program.images, program.held, program.examples, program.constant, program.label)


def _set_bytes(own: bytes, one: bytes, other: bytes, equal: Sequence[bytes]) -> bytes:
    if any(len(each) != len(own) for each in (one, other, *equal)):
        return own
    unset = {word for word in range(0, len(own), WORD) if len({each[word : word + WORD] for each in equal}) > 1}
    return bytes(0 if one[at] != other[at] and at - at % WORD in unset else byte for at, byte in enumerate(own))
