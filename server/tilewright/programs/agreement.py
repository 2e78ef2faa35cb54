"""What two captures of one call agree in.

Parameters of C++ kernels have bytes that nobody sets: padding, empty structs, and members that this call does without.
They hold what lay on the stack before, and differ from process to process. Further captures, with the values of the
first two, tell them from bytes that depend on the values. In a program they are zero: should a kernel use them after
all, it is replayed with zeros and judged by what it gives then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tilewright.programs.identity import differences
from tilewright.programs.model import Kernel, Program, ProgramError
from tilewright.programs.order import AnyNode, Graph, canonical

WORD = 8
FURTHER = 2
"""Captures on the values of each of the first two, beyond these: of a byte that nobody sets, one of 256 pairs is equal
by chance."""
Unset = set[tuple[int, int, int]]
"""Words of which nobody sets all bytes: a node's number, a parameter's, and the first byte."""


def agreed(first: Program, second: Program, again: Callable[[int], Program]) -> Program:
    """The one program that two captures on different values are. `again` gives a further capture on the values of the
    first (0) or the second (1): the first one may also have compiled and tuned, which the later ones find done. Raises
    `ProgramError`, which says where the captures differ."""
    found = differences(first, second, most=3)
    if not found:
        return first
    alike: tuple[list[Program], list[Program]] = [first], [second]
    for number in range(2 * FURTHER):
        alike[number % 2].append(again(number % 2))
        one, other = alike[0][-1], alike[1][-1]
        unset = _unset(alike[0], one) | _unset(alike[1], other)
        program = _cleared(one, other, unset)
        found = differences(program, _cleared(other, one, unset), most=3)
        if not found:
            return program
    raise ProgramError("; ".join(found))


def _unset(alike: Sequence[Program], last: Program) -> Unset:
    """The words in which captures on equal values differ."""
    layouts = [program.layout for program in alike if _outline(program) == _outline(last)]
    return {
        (place, number, at)
        for place, node in enumerate(last.layout.nodes)
        if isinstance(node, Kernel)
        for number, own in enumerate(node.parameters)
        for at in range(0, len(own), WORD)
        if len({_parameter(layout.nodes[place], number)[at : at + WORD] for layout in layouts}) > 1
    }


def _cleared(program: Program, other: Program, unset: Unset) -> Program:
    """The program with zeros where it differs from another one in these words."""
    if _outline(program) != _outline(other):
        return program
    nodes: list[AnyNode] = [*program.layout.nodes]
    for place, (node, its) in enumerate(zip(nodes, other.layout.nodes, strict=True)):
        if isinstance(node, Kernel):
            parameters = tuple(
                bytes(
                    0 if byte != _parameter(its, number)[at] and (place, number, at - at % WORD) in unset else byte
                    for at, byte in enumerate(own)
                )
                for number, own in enumerate(node.parameters)
            )
            nodes[place] = node.model_copy(update={"parameters": parameters})
    ordered, edges = canonical(Graph(nodes, program.layout.edges))
    return replace(program, layout=program.layout.model_copy(update={"nodes": ordered, "edges": edges}))


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
