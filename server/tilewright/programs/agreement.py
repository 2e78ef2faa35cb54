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
            found = differences(one.program, other.program, most=3)
            if not found:
                return one
    raise ProgramError("; ".join(found))


def seem_the_same(one: Program, other: Program, unset: Unset) -> bool:
    """Whether two programs are the same but for what is `unset` in either, which chance decided. A set value may share
    its four bytes with unset ones, and then does not count. So this may only reject a candidate, never keep one."""
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


def _without_unset(program: Program, one: Program, alike: Sequence[Sequence[Program]]) -> Agreed:
    """The program with zeros where `one` differs from the last of the second values, in words in which those differ
    that have equal values. `alike`: captures on the first and on the second values."""
    nodes: list[AnyNode] = [*program.layout.nodes]
    unset: dict[int, set[tuple[int, int]]] = {}
    other = alike[1][-1]
    if _outline(program) == _outline(one) == _outline(other):
        groups = [[each.layout.nodes for each in group if _outline(each) == _outline(one)] for group in alike]
        for place, node in enumerate(nodes):
            if not isinstance(node, Kernel):
                continue
            kept, halves = list[bytes](), set[tuple[int, int]]()
            for number, own in enumerate(node.parameters):
                values = [[_parameter(each[place], number) for each in group] for group in groups]
                a, b = (_parameter(each.layout.nodes[place], number) for each in (one, other))
                kept.append(_set_bytes(own, a, b, _differing(values, WORD)))
                halves |= {(number, at) for at in _differing(values, HALF)}
            nodes[place] = node.model_copy(update={"parameters": tuple(kept)})
            unset[id(nodes[place])] = halves
    ordered, edges = canonical(Graph(nodes, program.layout.edges))
    layout = program.layout.model_copy(update={"nodes": ordered, "edges": edges})
    places = frozenset((place, *half) for place, node in enumerate(ordered) for half in unset.get(id(node), ()))
    return Agreed(replace(program, layout=layout), places)


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


def _differing(alike: Sequence[Sequence[bytes]], size: int) -> set[int]:
    """Where parts of so many bytes begin in which those differ that have equal values."""
    return {
        at
        for group in alike
        for at in range(0, len(group[0]) if group else 0, size)
        if len({each[at : at + size] for each in group}) > 1
    }


def _set_bytes(own: bytes, one: bytes, other: bytes, unset: set[int]) -> bytes:
    return bytes(0 if one[at] != other[at] and at - at % WORD in unset else byte for at, byte in enumerate(own))
