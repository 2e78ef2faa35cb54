"""What two captures of one call agree in.

Parameters of C++ kernels have bytes that nobody sets: padding, empty structs, and members that this call does without.
They hold what lay on the stack before, and differ from process to process. Further captures, with the values of the
first two, tell them from bytes that depend on the values. In a program they are zero: should a kernel use them after
all, it is replayed with zeros and judged by what it gives then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from tilewright.programs.identity import differences, identity
from tilewright.programs.model import Kernel, Program, ProgramError
from tilewright.programs.order import AnyNode, Graph, canonical

WORD = 8
HALF = 4
FURTHER = 2
"""Captures on the values of each of the first two, beyond these: of a byte that nobody sets, one of 256 pairs is equal
by chance."""
Unset = frozenset[tuple[int, int, int]]
"""Halves of words in which captures on equal values differ: a node's number, a parameter's, and the first byte. Nobody
sets all of their bytes."""


class Agreed(NamedTuple):
    """What captures agree in."""

    program: Program
    unset: Unset = frozenset()


def agreed(first: Program, second: Program, again: Callable[[int], Program]) -> Agreed:
    """The one program that two captures on different values are. `again` gives a further capture on the values of the
    first (0) or the second (1): the first one may also have compiled and tuned, which the later ones find done. Raises
    `ProgramError`, which says where the captures differ."""
    found = differences(first, second, most=3)
    if not found:
        return Agreed(first)
    alike: tuple[list[Program], list[Program]] = [first], [second]
    for number in range(2 * FURTHER):
        alike[number % 2].append(again(number % 2))
        for program in (alike[0][-1], first):
            one, other = (_without_unset(each, program, alike) for each in (program, alike[1][-1]))
            found = differences(one, other, most=3)
            if not found:
                return Agreed(one, _unset(program, alike))
    raise ProgramError("; ".join(found))


def seem_the_same(one: Program, other: Program, unset: Unset) -> bool:
    """Whether two programs are the same but for what is `unset` in either: chance decided that. A value may share its
    four bytes with others that nobody sets, and not count then, so that this is no reason to keep anything."""
    if identity(one) == identity(other):
        return True
    return bool(unset) and not differences(_cleared(one, unset), _cleared(other, unset), most=1)


def _cleared(program: Program, unset: Unset) -> Program:
    """With zeros in these halves of words."""
    nodes: list[AnyNode] = [*program.layout.nodes]
    for place, number, at in unset:
        if place < len(nodes) and isinstance(node := nodes[place], Kernel) and number < len(node.parameters):
            values = [*node.parameters]
            values[number] = values[number][:at] + bytes(len(values[number][at:][:HALF])) + values[number][at + HALF :]
            nodes[place] = node.model_copy(update={"parameters": tuple(values)})
    return replace(program, layout=program.layout.model_copy(update={"nodes": tuple(nodes)}))


def _unset(program: Program, alike: Sequence[Sequence[Program]]) -> Unset:
    groups = [[each.layout.nodes for each in group if _outline(each) == _outline(program)] for group in alike]
    return frozenset(
        (place, number, at)
        for place, node in enumerate(program.layout.nodes)
        if isinstance(node, Kernel)
        for number, own in enumerate(node.parameters)
        for at in range(0, len(own), HALF)
        if any(len({_parameter(each[place], number)[at : at + HALF] for each in group}) > 1 for group in groups)
    )


def _without_unset(program: Program, one: Program, alike: Sequence[Sequence[Program]]) -> Program:
    """The program with zeros where `one` differs from the last of the second values, in words in which those differ
    that have equal values. `alike`: captures on the first and on the second values."""
    nodes: list[AnyNode] = [*program.layout.nodes]
    other = alike[1][-1]
    if _outline(program) == _outline(one) == _outline(other):
        groups = [[each.layout.nodes for each in group if _outline(each) == _outline(one)] for group in alike]
        for place, node in enumerate(nodes):
            if isinstance(node, Kernel):
                kept = tuple(
                    _set_bytes(
                        own,
                        _parameter(one.layout.nodes[place], number),
                        _parameter(other.layout.nodes[place], number),
                        [[_parameter(each[place], number) for each in group] for group in groups],
                    )
                    for number, own in enumerate(node.parameters)
                )
                nodes[place] = node.model_copy(update={"parameters": kept})
    ordered, edges = canonical(Graph(nodes, program.layout.edges))
    layout = program.layout.model_copy(update={"nodes": ordered, "edges": edges})
    return replace(program, layout=layout)


def _outline(program: Program) -> list[tuple[str, ...]]:
    """What programs have in common whose parameters can be compared: kinds, symbols, and sizes of parameters."""
    return [
        (node.kind, node.symbol, *(str(len(data)) for data in node.parameters))
        if isinstance(node, Kernel)
        else (node.kind,)
        for node in program.layout.nodes
    ]


def _parameter(node: AnyNode, number: int) -> bytes:
    assert isinstance(node, Kernel)
    return node.parameters[number]


def _set_bytes(own: bytes, one: bytes, other: bytes, alike: Sequence[Sequence[bytes]]) -> bytes:
    unset = {
        word
        for word in range(0, len(own), WORD)
        if any(len({each[word : word + WORD] for each in group}) > 1 for group in alike)
    }
    return bytes(0 if one[at] != other[at] and at - at % WORD in unset else byte for at, byte in enumerate(own))
